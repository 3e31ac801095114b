"""Procedures that run programs: OS definitions and allocators."""

from ganeti.model.instance_spec import InstanceSpec, OsFacts
from ganeti.rpc.procedures.form import HOURS_S, NORMAL_S, SLOW_S, Message, Nothing, Procedure


class OsInfo(Message, frozen=True, kw_only=True):
    """One OS definition on one node; `problem` is '' if it can be used."""

    name: str
    path: str
    problem: str
    api_versions: list[int]
    variants: list[str]
    parameters: list[tuple[str, str]]
    version: str
    scripts: list[str]
    hypervisors: list[str] = []
    """Empty means all."""


class OsCreateArgs(Message, frozen=True, kw_only=True):
    """Run the `create` script: `os` with its variant, `osparams` already layered."""

    instance: InstanceSpec
    os: str
    osparams: dict[str, str]
    debug: int = 0
    force_variant: bool = False
    reinstall: bool = False
    """True if the disks had an earlier installation."""
    facts: OsFacts = OsFacts()


class OsRenameArgs(Message, frozen=True, kw_only=True):
    """Run the `rename` script: `instance` has the new name, `old_name` is the previous one."""

    instance: InstanceSpec
    os: str
    old_name: str
    osparams: dict[str, str]
    debug: int = 0
    facts: OsFacts = OsFacts()

    @property
    def instance_name(self) -> str:
        """Return the name by which the cluster knows it until the script has succeeded."""
        return self.old_name


class ScriptResult(Message, frozen=True, kw_only=True):
    """The result of a successful script: the end of its output, and the path of the whole output."""

    tail: str
    log_path: str


class OsValidateArgs(Message, frozen=True, kw_only=True):
    os: str
    osparams: dict[str, str]
    force_variant: bool = False
    are_defaults: bool = False
    """The parameters are for all variants, and perhaps for an OS that does not exist yet (S147, S149)."""


class OsVerified(Message, frozen=True, kw_only=True):
    """The definition accepts the parameters; `said` is the end of its verify script's output (S243)."""

    said: str = ""


class AllocatorArgs(Message, frozen=True, kw_only=True):
    """Run the allocator `name`, found in the search path, on a message (JSON text); without one, only look for it."""

    name: str
    message: str | None
    options: list[str] = []
    """Further arguments that the cluster sets for its default allocators."""


class AllocatorOutput(Message, frozen=True, kw_only=True):
    """The allocator program's result; `found` is False if no program has the name."""

    found: bool
    status: int = 0
    stdout: str = ""
    stderr: str = ""


OS_DIAGNOSE = Procedure("os_diagnose", Nothing, list[OsInfo], NORMAL_S, changes=False)

OS_VALIDATE = Procedure("os_validate", OsValidateArgs, OsVerified, SLOW_S, changes=False)

OS_CREATE = Procedure("os_create", OsCreateArgs, ScriptResult, HOURS_S, changes=True, is_long=True)

OS_RENAME = Procedure("os_rename", OsRenameArgs, ScriptResult, HOURS_S, changes=True, is_long=True)

ALLOCATOR_RUN = Procedure("allocator_run", AllocatorArgs, AllocatorOutput, SLOW_S, changes=False)
