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
    """Something was installed on the disks before."""
    facts: OsFacts = OsFacts()


class OsRenameArgs(Message, frozen=True, kw_only=True):
    """Run the `rename` script: `instance` has the new name, `old_name` is the one that it had."""

    instance: InstanceSpec
    os: str
    old_name: str
    osparams: dict[str, str]
    debug: int = 0
    facts: OsFacts = OsFacts()

    @property
    def instance_name(self) -> str:
        """The name that the cluster knows it by until the script has ended well."""
        return self.old_name


class ScriptResult(Message, frozen=True, kw_only=True):
    """The end of a script that succeeded: the tail of what it said for people, and where all of it is kept."""

    tail: str
    log_path: str


class OsValidateArgs(Message, frozen=True, kw_only=True):
    os: str
    osparams: dict[str, str]
    force_variant: bool = False
    are_defaults: bool = False
    """They are meant for all variants, and for an OS that may not exist yet (S147, S149)."""


class OsVerified(Message, frozen=True, kw_only=True):
    """The definition accepts the parameters; `said` is the end of what its verify script printed (S243)."""

    said: str = ""


class AllocatorArgs(Message, frozen=True, kw_only=True):
    """Run the allocator `name`, found in the search path, on a message (JSON text)."""

    name: str
    message: str
    options: list[str] = []
    """Further arguments, as the cluster has them for its default allocators."""


class AllocatorOutput(Message, frozen=True, kw_only=True):
    """How the allocator's program ended; `found` is False if there is none of that name."""

    found: bool
    status: int = 0
    stdout: str = ""
    stderr: str = ""


OS_DIAGNOSE = Procedure("os_diagnose", Nothing, list[OsInfo], NORMAL_S, changes=False)

OS_VALIDATE = Procedure("os_validate", OsValidateArgs, OsVerified, SLOW_S, changes=False)

OS_CREATE = Procedure("os_create", OsCreateArgs, ScriptResult, HOURS_S, changes=True, is_long=True)

OS_RENAME = Procedure("os_rename", OsRenameArgs, ScriptResult, HOURS_S, changes=True, is_long=True)

ALLOCATOR_RUN = Procedure("allocator_run", AllocatorArgs, AllocatorOutput, SLOW_S, changes=False)
