"""Import and export of instance policies."""

from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.cluster_values import changed_policy
from ganeti.model.disk_templates import DISK_TEMPLATES
from ganeti.model.params import IPOLICY_DEFAULTS, UPSTREAM_IPOLICY, Params, layered
from ganeti.upstream.choices import Reading
from ganeti.upstream.forms import Document

_BOUNDS = UPSTREAM_IPOLICY["minmax"][0]
_TEMPLATES = "disk-templates"


def read_policy(reading: Reading, what: str, given: Any, *, of_group: bool) -> Params:
    """Return the cluster's whole policy without our defaults, or the parts that a group overrides."""
    policy: Params = {
        **({} if of_group else UPSTREAM_IPOLICY),
        **(given if isinstance(given, dict) else {}),
    }
    if _TEMPLATES in policy:
        policy[_TEMPLATES] = _templates(reading, what, policy[_TEMPLATES])
    if isinstance(policy.get("minmax"), list):
        policy["minmax"] = [_filled(pair) for pair in policy["minmax"]]
    if isinstance(policy.get("std"), dict):
        policy["std"] = {**_BOUNDS["min"], **policy["std"]}
    found: Params = {}
    for name, value in policy.items():
        try:
            # Bounds and standard belong together: the standard is within the bounds.
            together = {"std": policy["std"]} if name == "minmax" and "std" in policy else {}
            if name != "std" or "minmax" not in policy:
                changed_policy({}, {name: value, **together}, "ipolicy", of_group=of_group)
            found[name] = value
        except InputError as err:
            reading.unknown(what, f"ipolicy.{name}", err.message)
    if of_group:
        return found
    return {name: value for name, value in found.items() if value != IPOLICY_DEFAULTS.get(name)}


def _templates(reading: Reading, what: str, given: Any) -> list[str]:
    known = [name for name in given if name in DISK_TEMPLATES] if isinstance(given, list) else []
    if isinstance(given, list) and len(known) < len(given):
        others = ", ".join(str(name) for name in given if name not in DISK_TEMPLATES)
        reading.keep(
            what, f"ipolicy.{_TEMPLATES}", f"these disk templates are not supported: {others}"
        )
    return known


def _filled(pair: Any) -> Any:
    if not isinstance(pair, dict):
        return pair
    return {end: {**_BOUNDS.get(end, {}), **(spec or {})} for end, spec in pair.items()}


def written_policy(policy: Params, *, of_group: bool) -> Document:
    """Remove `std`: groups of upstream have none of their own."""
    if of_group:
        return {name: value for name, value in policy.items() if name != "std"}
    return layered(IPOLICY_DEFAULTS, policy)
