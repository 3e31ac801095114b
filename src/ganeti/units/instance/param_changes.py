"""Changes of an instance's parameters, in the configuration: pure."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.config.fill import layered_beparams
from ganeti.model.applies import Applies, of_backend, of_hypervisor
from ganeti.model.hypervisor_params import check_hypervisor_params, hypervisor_defaults
from ganeti.model.names import AdminState, AdminStateSource
from ganeti.model.objects import Cluster, Instance
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams
from ganeti.model.param_checks import changed, check_backend_params, check_os_params
from ganeti.model.params import MEMORY, Params
from ganeti.units.instance.field_changes import BACKEND, HYPERVISOR, FieldChange

DEFAULT = "default"
"""A value that resets a parameter to the cluster's, as None does."""
HIDDEN = "<redacted>"
Results = list[FieldChange]


def changed_params(
    cluster: Cluster, instance: Instance, op: OpInstanceSetParams
) -> tuple[Instance, Results]:
    """Return the instance with all requested changes except devices, and the changes."""
    results = Results()
    beparams = backend_changes(op.beparams)
    if MEMORY in op.beparams:
        size = _shown(beparams["maxmem"])
        results.append(FieldChange(BACKEND, MEMORY, size, of_backend("maxmem")))
    named = op.beparams.keys() - {MEMORY}
    results += [
        FieldChange(BACKEND, name, _shown(value), of_backend(name))
        for name, value in beparams.items()
        if name in named
    ]
    hvparams = _hypervisor(instance.hypervisor, op.hvparams)
    results += [
        FieldChange(HYPERVISOR, name, _shown(value), of_hypervisor(name))
        for name, value in hvparams.items()
    ]
    new = replace(
        instance,
        beparams=changed(instance.beparams, beparams),
        hvparams=changed(instance.hvparams, hvparams),
    )
    if beparams:
        check_memory_bounds(layered_beparams(cluster, None, new))
    new = _with_os(new, op, results)
    return _with_admin_state(new, op, results), results


def check_memory_bounds(filled: Params) -> None:
    """Refuse a minimum memory above the maximum."""
    if filled["minmem"] > filled["maxmem"]:
        raise InputError(
            f"minmem ({filled['minmem']} MiB) is more than maxmem ({filled['maxmem']} MiB)",
            "beparams",
        )


def _shown(value: Any) -> Any:
    return DEFAULT if value is None else value


def backend_changes(given: Mapping[str, Any]) -> Params:
    """Return the checked values; None resets a parameter to the cluster's."""
    values = {name: None if value == DEFAULT else value for name, value in given.items()}
    return check_backend_params(values, "beparams")


def _hypervisor(hypervisor: str, given: Mapping[str, Any]) -> Params:
    reset = [name for name, value in given.items() if value in (None, DEFAULT)]
    kept = {name: value for name, value in given.items() if name not in reset}
    checked = check_hypervisor_params(hypervisor, kept, of_instance=True, field="hvparams")
    # An unknown parameter, or one of the whole cluster, cannot be reset either.
    defaults = hypervisor_defaults(hypervisor)
    of_cluster = {name: defaults.get(name) for name in reset}
    check_hypervisor_params(hypervisor, of_cluster, of_instance=True, field="hvparams")
    return checked | dict.fromkeys(reset)


def _with_os(instance: Instance, op: OpInstanceSetParams, results: Results) -> Instance:
    """Change the OS; its parameters are kept (S148)."""
    if op.os_name is not None:
        results.append(FieldChange("os", "", op.os_name, Applies.NOW))
        instance = replace(instance, os=op.os_name)
    public = _os_params(
        instance.osparams, op.osparams, op.remove_osparams, op.clear_osparams, "osparams"
    )
    private = _os_params(
        instance.osparams_private,
        op.osparams_private,
        op.remove_osparams_private,
        op.clear_osparams_private,
        "osparams_private",
    )
    results += _os_results("os", instance.osparams, public, None)
    results += _os_results("os_private", instance.osparams_private, private, HIDDEN)
    return replace(instance, osparams=public, osparams_private=private)


def _os_params(
    present: Mapping[str, str],
    given: Mapping[str, str | None] | None,
    removed: list[str] | None,
    clear: bool,  # noqa: FBT001 - a field of the opcode
    field: str,
) -> dict[str, str]:
    given = given or {}
    check_os_params({name: value or "" for name, value in given.items()}, field)
    kept = {} if clear else dict(present)
    for name in removed or ():
        if name not in present:
            raise PrereqError(
                f"{field}: the instance itself has no parameter {name!r:.80}",
                ErrorCode.UNKNOWN_ENTITY,
            )
        kept.pop(name, None)
    return {name: value for name, value in {**kept, **given}.items() if value is not None}


def _os_results(
    kind: str, before: Mapping[str, str], after: Mapping[str, str], hidden: str | None
) -> Results:
    changed_names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [
        FieldChange(kind, name, (hidden or after[name]) if name in after else DEFAULT, Applies.NOW)
        for name in changed_names
    ]


def _with_admin_state(instance: Instance, op: OpInstanceSetParams, results: Results) -> Instance:
    if op.offline is None:
        return instance
    is_offline = instance.admin_state is AdminState.OFFLINE
    if op.offline and instance.admin_state is AdminState.UP:
        raise PrereqError(
            f"instance {instance.name} is to run; shut it down before it is marked offline",
            ErrorCode.WRONG_STATE,
        )
    if not op.offline and not is_offline:
        return instance
    state = AdminState.OFFLINE if op.offline else AdminState.DOWN
    results.append(FieldChange("admin_state", "", state, Applies.NOW))
    return replace(instance, admin_state=state, admin_state_source=AdminStateSource.ADMIN)
