"""OS definitions on this node: directories of scripts, found by name in the search path (seed 002)."""

import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ganeti.base.errors import GuestOsError, InputError
from ganeti.base.identifiers import os_name, plain_name
from ganeti.rpc.procedures.programs import OsInfo

T = TypeVar("T")

API_VERSIONS = frozenset({10, 15, 20})
"""The supported versions of the interface (X9)."""

VARIANTS_SINCE = 15
PARAMETERS_SINCE = 20

SCRIPTS = ("create", "export", "import", "rename", "verify")

_FILE_LIMIT = 64 * 1024
_LINE_LIMIT = 256
_PARAMETER = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)


class _Unusable(Exception):
    """The fault that makes a definition unusable."""


def split_name(text: str) -> tuple[str, str]:
    """Split `name+variant` or `name` into two parts; the variant is '' if there is none (S120)."""
    name, _, variant = os_name(text, "os").partition("+")
    return name, variant


def find_all(search_path: Sequence[Path]) -> list[OsInfo]:
    """Return every definition, usable or not, by name; of two with one name the first in the search path counts."""
    found: dict[str, OsInfo] = {}
    for directory in search_path:
        try:
            names = sorted(one.name for one in directory.iterdir())
        except OSError:
            continue  # most nodes have only one or two of the directories
        for name in names:
            if name not in found and _is_name(name) and (directory / name).is_dir():
                found[name] = read(directory / name)
    return [found[name] for name in sorted(found)]


def load(search_path: Sequence[Path], name: str) -> OsInfo:
    """Return the usable definition `name` (without variant); GuestOsError if there is none."""
    found = find(search_path, name)
    if found is None:
        places = ", ".join(map(str, search_path))
        raise GuestOsError(f"OS {name} does not exist on this node; searched {places}")
    info = read(found)
    if info.problem:
        raise GuestOsError(f"OS {name} in {info.path} cannot be used: {info.problem}")
    return info


def find(search_path: Sequence[Path], name: str) -> Path | None:
    """Return the directory of the definition `name` (without variant), usable or not; None if there is none."""
    plain_name(name, "os")
    return next((one / name for one in search_path if (one / name).is_dir()), None)


def check_variant(info: OsInfo, variant: str, *, force: bool) -> None:
    """Refuse unless exactly one of the declared variants is chosen, if any are (S120).

    With `force` the script decides about a variant that is not declared (S122).
    """
    if info.variants and not variant:
        choice = ", ".join(f"{info.name}+{one}" for one in info.variants)
        raise GuestOsError(f"OS {info.name} needs a variant: {choice}")
    if force or variant in info.variants or not variant:
        return
    if not info.variants:
        raise GuestOsError(f"OS {info.name} has no variants, so '{variant}' cannot be chosen")
    raise GuestOsError(
        f"OS {info.name} does not declare variant '{variant}' (it has {', '.join(info.variants)});"
        " --force-variant passes it to the scripts nevertheless"
    )


def check_hypervisor(info: OsInfo, hypervisor: str) -> None:
    """Refuse a hypervisor that the definition does not name, if it names any (S138)."""
    if info.hypervisors and hypervisor not in info.hypervisors:
        raise GuestOsError(
            f"OS {info.name} does not support {hypervisor}, only {', '.join(info.hypervisors)}"
        )


def chosen_api(info: OsInfo) -> int:
    """Return the greatest version of the interface that both a usable definition and we support."""
    return max(API_VERSIONS.intersection(info.api_versions))


def read(directory: Path) -> OsInfo:
    """Read the definition in `directory`; blocks. `problem` says why it cannot be used."""
    problems: list[str] = []

    def attempt(step: Callable[[], T], otherwise: Callable[[], T]) -> T:
        try:
            return step()
        except _Unusable as err:
            problems.append(str(err))
        except OSError as err:
            problems.append(f"{err.filename or directory}: {err.strerror}")
        return otherwise()

    attempt(lambda: _check_trusted(directory, directory.stat()), lambda: None)
    versions = attempt(lambda: _api_versions(directory), list[int])
    scripts = attempt(lambda: _scripts(directory, versions), list[str])
    variants = attempt(lambda: _variants(directory, versions), list[str])
    parameters = attempt(lambda: _parameters(directory, versions), list[tuple[str, str]])
    version = attempt(lambda: _version(directory), str)
    hypervisors = attempt(lambda: _names(directory, "hypervisors") or [], list[str])
    return OsInfo(
        name=directory.name,
        path=str(directory),
        problem="; ".join(problems),
        api_versions=versions,
        variants=variants,
        parameters=parameters,
        version=version,
        scripts=scripts,
        hypervisors=hypervisors,
    )


def _is_name(name: str) -> bool:
    try:
        plain_name(name, "os")
    except InputError:
        return False
    return True


def _check_trusted(path: Path, status: os.stat_result) -> None:
    """Refuse files that run as root, unless only root can write them."""
    if status.st_uid not in (0, os.geteuid()):
        raise _Unusable(f"{path.name} belongs to user {status.st_uid}, not to root")
    if status.st_mode & stat.S_IWOTH:
        raise _Unusable(f"{path.name} is writable by every user")


def _lines(directory: Path, name: str) -> list[str] | None:
    """Return the lines of a file, stripped, without empty ones and comments; None if it does not exist."""
    path = directory / name
    try:
        # A pipe would block for ever, so the type is checked before opening.
        if not stat.S_ISREG(path.stat().st_mode):
            raise _Unusable(f"{name} is not a regular file")
        with path.open("rb") as source:
            data = source.read(_FILE_LIMIT + 1)
    except FileNotFoundError:
        return None
    if len(data) > _FILE_LIMIT:
        raise _Unusable(f"{name} is larger than {_FILE_LIMIT} bytes")
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _api_versions(directory: Path) -> list[int]:
    lines = _lines(directory, "ganeti_api_version")
    if lines is None:
        raise _Unusable("ganeti_api_version is missing")
    wrong = [line for line in lines if not (line.isascii() and line.isdecimal() and len(line) < 9)]  # noqa: PLR2004 -- digits that always fit
    if wrong:
        raise _Unusable(f"ganeti_api_version: {wrong[0]!r:.40} is not a number")
    versions = sorted({int(line) for line in lines}, reverse=True)
    if not API_VERSIONS.intersection(versions):
        spoken = ", ".join(map(str, sorted(API_VERSIONS)))
        declared = ", ".join(map(str, versions)) or "none"
        raise _Unusable(
            f"ganeti_api_version declares {declared}, this implementation supports {spoken}"
        )
    return versions


def _scripts(directory: Path, versions: list[int]) -> list[str]:
    """Return the existing scripts; X10 requires `verify` from version 20 on."""
    present = [name for name in SCRIPTS if (directory / name).exists()]
    for name in present:
        status = (directory / name).stat()
        if not stat.S_ISREG(status.st_mode) or not status.st_mode & stat.S_IXUSR:
            raise _Unusable(f"script {name} is not an executable file")
        _check_trusted(directory / name, status)
    if "create" not in present:
        raise _Unusable("script create is missing")
    if ("export" in present) != ("import" in present):
        raise _Unusable("scripts export and import require each other")
    if PARAMETERS_SINCE in versions and "verify" not in present:
        raise _Unusable(f"script verify is missing, which API {PARAMETERS_SINCE} requires")
    return present


def _names(directory: Path, file: str) -> list[str] | None:
    """Return a list of names, one a line."""
    lines = _lines(directory, file)
    for line in lines or []:
        if not _is_name(line):
            raise _Unusable(f"{file}: {line!r:.60} is not a name")
    if lines and len(set(lines)) < len(lines):
        raise _Unusable(f"{file} contains a name twice")
    return lines


def _variants(directory: Path, versions: list[int]) -> list[str]:
    """Return the declared variants; X8: mandatory with version 15 unless 20 is declared as well."""
    if not any(version >= VARIANTS_SINCE for version in versions):
        return []
    found = _names(directory, "variants.list")
    if not found and PARAMETERS_SINCE not in versions:
        what = "is missing" if found is None else "is empty"
        raise _Unusable(f"variants.list {what}, API {VARIANTS_SINCE} needs at least one variant")
    return found or []


def _parameters(directory: Path, versions: list[int]) -> list[tuple[str, str]]:
    """Return names, in lower case, and their lines of documentation (S142, S143)."""
    if PARAMETERS_SINCE not in versions:
        return []
    found: dict[str, str] = {}
    for line in _lines(directory, "parameters.list") or []:
        name, *words = line.split(maxsplit=1)
        lowered = name.lower()
        if not _PARAMETER.fullmatch(lowered):
            raise _Unusable(f"parameters.list: {name!r:.60} is not a name (letters, digits, '_')")
        if lowered in found:
            raise _Unusable(f"parameters.list contains {lowered} twice (case is ignored)")
        found[lowered] = " ".join(words)
    return list(found.items())


def _version(directory: Path) -> str:
    """Return the first line of `os_version`, for people (S141)."""
    lines = _lines(directory, "os_version")
    return "".join(filter(str.isprintable, lines[0]))[:_LINE_LIMIT] if lines else ""
