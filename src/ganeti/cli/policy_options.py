"""The options that describe an instance policy, for the cluster and for node groups."""

import argparse
import re
from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.cli.command import option
from ganeti.cli.key_values import key_values, whole_number, words
from ganeti.cli.output import Tree

AGAIN = "default"
"""The value that restores the policy of the layer below."""
_SIZES = ("memory-size", "disk-size")
_BOUNDS = r"(?s)(min|max):(.*)"

POLICY_OPTIONS = (
    option("--ipolicy-bounds-specs", dest="bounds", metavar="min:k=v,.../max:k=v,...",
           help="lower and upper bounds of instances; '//' separates several pairs"),
    option("--ipolicy-std-specs", dest="std", metavar="k=v,...",
           help="size of the standard instance, the unit of capacity"),
    option("--ipolicy-disk-templates", dest="policy_templates", metavar="NAME,...",
           help="disk templates that instances may have"),
    option("--ipolicy-vcpu-ratio", dest="vcpu_ratio", metavar="RATIO",
           help="virtual processors for each physical one"),
    option("--ipolicy-spindle-ratio", dest="spindle_ratio", metavar="RATIO",
           help="instances for each spindle"),
)  # fmt: skip


def policy_tree(actual: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> Tree:
    """Return a policy for `info` in the form that scripts read; values missing in `own` are shown as defaults."""

    def shown(part: str, value: Any) -> Any:
        return value if own is None or part in own else f"default ({value})"

    def specs(part: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: shown(part, value) for name, value in sorted(values.items())}

    bounds = [
        [(f"{end}/{number}", specs("minmax", pair[end])) for end in ("max", "min")]
        for number, pair in enumerate(actual["minmax"])
    ]
    ratios = [(f"{name}-ratio", f"{actual[f'{name}-ratio']:g}") for name in ("vcpu", "spindle")]
    return [
        ("bounds specs", bounds),
        ("std", specs("std", actual["std"])),
        ("allowed disk templates", shown("disk-templates", ", ".join(actual["disk-templates"]))),
        *((name, shown(name, value)) for name, value in ratios),
    ]


def policy_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the parts of a policy that the options set; None restores the cluster's part."""
    policy: dict[str, Any] = {}
    if args.bounds is not None:
        pairs = args.bounds.split("//")
        policy["minmax"] = None if args.bounds == AGAIN else [_bounds(pair) for pair in pairs]
    if args.std is not None:
        policy["std"] = None if args.std == AGAIN else _spec(args.std, "ipolicy-std-specs")
    if args.policy_templates is not None:
        again = args.policy_templates == AGAIN
        policy["disk-templates"] = None if again else words(args.policy_templates)
    if args.vcpu_ratio is not None:
        policy["vcpu-ratio"] = _ratio(args.vcpu_ratio, "ipolicy-vcpu-ratio")
    if args.spindle_ratio is not None:
        policy["spindle-ratio"] = _ratio(args.spindle_ratio, "ipolicy-spindle-ratio")
    return policy


def _bounds(text: str) -> dict[str, Any]:
    """Return the pair of `min:k=v,…/max:k=v,…`."""
    where = "ipolicy-bounds-specs"
    found = {}
    for part in text.split("/"):
        matched = re.fullmatch(_BOUNDS, part)
        if matched is None:
            raise InputError(f"{part!r:.60} must begin with min: or max:", where)
        found[matched[1]] = _spec(matched[2], f"{where}.{matched[1]}")
    return found


def _spec(text: str, field: str) -> dict[str, int]:
    spec = {}
    for name, value in key_values(text, field).items():
        where = f"{field}.{name}"
        spec[name] = (
            parse_mib(str(value), where) if name in _SIZES else whole_number(str(value), where)
        )
    return spec


def _ratio(text: str, field: str) -> float | None:
    if text == AGAIN:
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r:.40} is not a number", field) from None
