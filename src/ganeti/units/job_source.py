"""The limits of jobs from remote users (A44, A45): parameters that reach the host.

A parameter that names a file, a program, a device, a user or a listening address of the host is
refused to users of the REST interface, unless the cluster's `remote_hvparams` names it.
"""

from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.job import is_remote
from ganeti.model.objects import Cluster
from ganeti.units.context import UnitContext

PROGRAMS_OF_NODES = frozenset({"oob_program", "fence_agent", "fence_options"})
"""Parameters of nodes that name programs; options of fence agents can name programs, too."""


def check_may_set(
    ctx: UnitContext, hypervisor: str, hvparams: Mapping[str, Any], field: str = "hvparams"
) -> None:
    """Raise PrereqError if the job's source may not set one of these; units call it for all parameters of a request."""
    if is_remote(ctx.run.source):
        refuse_host_params(ctx.snapshot.cluster, hypervisor, hvparams, field)


def check_may_set_of_nodes(ctx: UnitContext, ndparams: Mapping[str, Any] | None) -> None:
    """Raise PrereqError if the job's source may not set one of these parameters of nodes."""
    if not is_remote(ctx.run.source):
        return
    for name in PROGRAMS_OF_NODES & (ndparams or {}).keys():
        raise PrereqError(
            f"ndparams.{name}: this parameter names a program, so it can be set only on the master",
            ErrorCode.WRONG_INPUT,
        )


def check_is_local(ctx: UnitContext, what: str) -> None:
    """Raise PrereqError if the job came from a remote user."""
    if is_remote(ctx.run.source):
        raise PrereqError(
            f"{what} can be changed only on the master, not through the REST interface",
            ErrorCode.WRONG_INPUT,
        )


def refuse_host_params(
    cluster: Cluster, hypervisor: str, hvparams: Mapping[str, Any], field: str
) -> None:
    """Raise PrereqError that names the first parameter which remote users may not set."""
    known = HYPERVISOR_PARAMS.get(hypervisor, {})
    for name in hvparams:
        if name in known and known[name].touches_host and name not in cluster.remote_hvparams:
            raise PrereqError(
                f"{field}.{name}: this parameter reaches the host, so it can be set only on the master;"
                f" to allow it in the REST interface: gnt-cluster modify --remote-hvparams={name}",
                ErrorCode.WRONG_INPUT,
            )
