"""Providers of external storage on this node: directories of scripts, found by name in the search path."""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import InputError, StorageError
from ganeti.base.identifiers import plain_name
from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.model.instance_spec import DiskSpec
from ganeti.rpc.procedures.external import ProviderInfo

REQUIRED = ("create", "attach", "detach", "remove", "grow", "setinfo")
OPTIONAL = ("snapshot", "open", "close", "verify", "fence", "unfence")
"""`verify` is never run, as in upstream Ganeti: a provider may lack it. Upstream has neither `fence` nor `unfence`."""
PARAMETERS = "parameters.list"

_FILE_LIMIT = 64 * 1024
_PARAMETER = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_VALUE_LIMIT = 4096


@dataclass(frozen=True)
class Provider:
    """A usable provider: its directory, its scripts, the names of its parameters."""

    path: Path
    scripts: tuple[str, ...]
    parameters: tuple[str, ...]


def provider_name(text: str, field: str) -> str:
    """Return `text` if it can name a provider; else InputError."""
    return plain_name(text, field)


def find_all(search_path: Sequence[Path]) -> list[ProviderInfo]:
    """Return every provider, usable or not, by name; of two with one name the first in the path counts. Blocks."""
    found: dict[str, ProviderInfo] = {}
    for directory in search_path:
        try:
            names = sorted(one.name for one in directory.iterdir())
        except OSError:
            continue  # most nodes have none
        for name in names:
            if name not in found and _is_name(name) and (directory / name).is_dir():
                found[name] = _described(name, directory / name)
    return [found[name] for name in sorted(found)]


def load(search_path: Sequence[Path], name: str) -> Provider:
    """Return a usable provider; StorageError gives its fault, or the searched directories. Blocks."""
    if not _is_name(name):
        raise StorageError(f"{name!r:.80} cannot be the name of a provider of external storage")
    directory = next((one / name for one in search_path if (one / name).is_dir()), None)
    if directory is None:
        places = ", ".join(map(str, search_path))
        raise StorageError(f"the provider {name} does not exist on this node; searched {places}")
    try:
        return _read(directory)
    except OSError as err:
        raise StorageError(f"provider {name} in {directory}: {err.strerror}") from err


def environment(
    provider: Provider, disk: DiskSpec, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables of every script: VOL_NAME, VOL_UUID, VOL_CNAME, EXTP_*, and those of its own action.

    Names of parameters are those that the provider declares, so that none can become another variable.
    """
    found = {
        **CLEAN_ENVIRONMENT,
        "VOL_NAME": str(disk.logical_id[1]),
        "VOL_UUID": disk.uuid,
        **({"VOL_CNAME": disk.name} if disk.name else {}),
        **(more or {}),
    }
    for name in provider.parameters:
        if name in disk.params:
            value = str(disk.params[name])
            if "\0" in value or len(value) > _VALUE_LIMIT:
                raise StorageError(
                    f"parameter {name} has a value that cannot be passed to a program"
                )
            found[f"EXTP_{name.upper()}"] = value
    return found


def _is_name(name: str) -> bool:
    try:
        return provider_name(name, "provider") == name
    except InputError:
        return False


def _described(name: str, directory: Path) -> ProviderInfo:
    try:
        provider = _read(directory)
    except StorageError as err:
        return ProviderInfo(name=name, path=str(directory), problem=err.message)
    except OSError as err:
        return ProviderInfo(name=name, path=str(directory), problem=str(err.strerror))
    texts = _lines(directory)
    return ProviderInfo(
        name=name,
        path=str(directory),
        scripts=list(provider.scripts),
        parameters=[(one, texts[one]) for one in provider.parameters],
    )


def _read(directory: Path) -> Provider:
    _check_trusted(directory)
    scripts = []
    for name in (*REQUIRED, *OPTIONAL):
        script = directory / name
        if not script.exists():
            if name in REQUIRED:
                raise StorageError(f"provider in {directory}: script {name} is missing")
            continue
        _check_trusted(script)
        if not script.is_file() or not os.access(script, os.X_OK):
            raise StorageError(f"provider in {directory}: script {name} cannot be run")
        scripts.append(name)
    return Provider(directory, tuple(scripts), tuple(_lines(directory)))


def _lines(directory: Path) -> dict[str, str]:
    """Return name -> description, of the parameters that a provider declares."""
    path = directory / PARAMETERS
    try:
        text = path.read_text("utf-8", "replace")[:_FILE_LIMIT]
    except FileNotFoundError as err:
        raise StorageError(f"provider in {directory}: {PARAMETERS} is missing") from err
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, *rest = line.split(None, 1)
        if not _PARAMETER.fullmatch(name):
            raise StorageError(
                f"provider in {directory}: {PARAMETERS}: {name!r:.60} is not the name of a parameter"
            )
        found[name] = "".join(rest)
    return found


def _check_trusted(path: Path) -> None:
    """Require that no other user can change scripts, because they run as root (B6)."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        raise StorageError(f"{path} belongs to user {status.st_uid}; change its owner to root")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StorageError(f"{path} is writable by other users; run chmod go-w on it")
