"""What any node may read without asking: small facts about the cluster, in files.

A set of values is written into a directory of its own and becomes current as a whole, by the switch
of one link; `ssconf_<name>` beside it are links into the current set, for scripts that know these
names. An older set never replaces a newer one (F8).
"""

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from ganeti.base.errors import ConfigurationError, InputError
from ganeti.base.files import sync_directory
from ganeti.base.paths import Paths

PREFIX = "ssconf_"
POSITION_FILE = "position"
SIZE_LIMIT = 16 * 1024 * 1024
"""Bytes of one value."""
FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
KEPT_SETS = 2
"""The current one, and the one before it, which a program may be reading."""
READ_TRIES = 5

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
_SET = re.compile(r"ssconf-([0-9]{20})-[0-9a-f]{8}", re.ASCII)


def write_set(paths: Paths, position: int, values: Mapping[str, str]) -> bool:
    """Make `values` the current set, durably and as a whole; False if a newer one is there."""
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r:.80} is not the name of an ssconf value", "values")
        if len(value.encode()) > SIZE_LIMIT:
            raise InputError(f"{name} has more than {SIZE_LIMIT} bytes", "values")
    paths.data.mkdir(parents=True, exist_ok=True)
    if position < current_position(paths):
        return False
    current = paths.ssconf.resolve() if paths.ssconf.is_symlink() else None
    new = paths.data / f"ssconf-{position:020d}-{secrets.token_hex(4)}"
    new.mkdir(mode=DIRECTORY_MODE)
    new.chmod(DIRECTORY_MODE)
    try:
        for name, value in values.items():
            _write(new / f"{PREFIX}{name}", value, current)
        _write(new / POSITION_FILE, str(position), None)
        sync_directory(new)
        sync_directory(paths.data)
        _switch(paths.ssconf, new.name)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    _link_names(paths, values)
    sync_directory(paths.data)
    _remove_old(paths)
    return True


def current_position(paths: Paths) -> int:
    """The position of the current set; -1 if there is none, or none that can be read."""
    return _position_of(paths.ssconf)


def read_set(paths: Paths) -> tuple[int, dict[str, str]]:
    """The position and all values of the current set, none of another; ConfigurationError without one."""
    for _ in range(READ_TRIES):
        directory = paths.ssconf.resolve()
        try:
            values = {
                file.name.removeprefix(PREFIX): file.read_text(encoding="utf-8").removesuffix("\n")
                for file in sorted(directory.glob(f"{PREFIX}*"))
            }
            (directory / POSITION_FILE).stat()
        except FileNotFoundError:
            if not paths.ssconf.exists():
                break
            continue  # it was replaced, and removed, while we read
        return _position_of(directory), values
    raise ConfigurationError(
        f"{paths.ssconf} cannot be read: this host is not a node of a cluster, or its master has not"
        " sent it the cluster's facts yet"
    )


def checksum(values: Mapping[str, str]) -> str:
    """SHA-256 of a set's content, whatever its position."""
    lines = "".join(f"{name}\0{values[name]}\0" for name in sorted(values))
    return hashlib.sha256(lines.encode()).hexdigest()


def candidate_certificates(paths: Paths) -> dict[str, str]:
    """Node UUID -> SHA-256 fingerprint of the master candidates' certificates.

    Empty if the list is missing or damaged: then no caller is accepted (G22, A25).
    """
    try:
        lines = SimpleStore(paths).lines("master_candidates_certs")
    except (OSError, UnicodeDecodeError, ConfigurationError):
        return {}
    pairs = [line.split("=") for line in lines]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):  # noqa: PLR2004 - key and value
        return {}
    return {pair[0]: pair[1] for pair in pairs}


class SimpleStore:
    """Readers of single values, by the names that Ganeti gives them."""

    def __init__(self, paths: Paths | None = None) -> None:
        self._paths = Paths.from_environment() if paths is None else paths

    def position(self) -> int:
        """The position of the current set; -1 if there is none."""
        return current_position(self._paths)

    def read(self, name: str) -> str:
        """One value; ConfigurationError if this host has none."""
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r:.80} is not the name of an ssconf value", "name")
        path = self._paths.ssconf / f"{PREFIX}{name}"
        try:
            return path.read_text(encoding="utf-8").removesuffix("\n")
        except FileNotFoundError:
            raise ConfigurationError(
                f"{path} does not exist: this host is not a node of a cluster, or its master has not"
                " sent it the cluster's facts yet"
            ) from None

    def lines(self, name: str) -> list[str]:
        """A value that is a list, one item a line."""
        return [line for line in self.read(name).splitlines() if line]

    def pairs(self, name: str) -> dict[str, str]:
        """A value whose lines are `KEY VALUE` or `KEY=VALUE`."""
        found = (re.split(r"[ =]", line, maxsplit=1) for line in self.lines(name))
        return {parts[0]: parts[-1] for parts in found}

    # The names of these methods are those of Ganeti's Python module.

    def GetClusterName(self) -> str:
        return self.read("cluster_name")

    def GetMasterNode(self) -> str:
        return self.read("master_node")

    def GetMasterIP(self) -> str:
        return self.read("master_ip")

    def GetMasterNetdev(self) -> str:
        return self.read("master_netdev")

    def GetMasterNetmask(self) -> int:
        return int(self.read("master_netmask"))

    def GetMasterCandidates(self) -> list[str]:
        return self.lines("master_candidates")

    def GetMasterCandidatesIPList(self) -> list[str]:
        return self.lines("master_candidates_ips")

    def GetMasterCandidatesCertMap(self) -> dict[str, str]:
        return candidate_certificates(self._paths)

    def GetNodeList(self) -> list[str]:
        return self.lines("node_list")

    def GetOnlineNodeList(self) -> list[str]:
        return self.lines("online_nodes")

    def GetOfflineNodeList(self) -> list[str]:
        return self.lines("offline_nodes")

    def GetNodePrimaryIPList(self) -> list[str]:
        return self.lines("node_primary_ips")

    def GetNodeSecondaryIPList(self) -> list[str]:
        return self.lines("node_secondary_ips")

    def GetNodesVmCapable(self) -> dict[str, bool]:
        return {name: text == "True" for name, text in self.pairs("node_vm_capable").items()}

    def GetNodegroupList(self) -> list[str]:
        return self.lines("nodegroups")

    def GetInstanceList(self) -> list[str]:
        return self.lines("instance_list")

    def GetClusterTags(self) -> list[str]:
        return self.lines("cluster_tags")

    def GetHypervisorList(self) -> list[str]:
        return self.lines("hypervisor_list")

    def GetHvparamsForHypervisor(self, hypervisor: str) -> dict[str, str]:
        return self.pairs(f"hvparams_{hypervisor}")

    def GetFileStorageDir(self) -> str:
        return self.read("file_storage_dir")

    def GetSharedFileStorageDir(self) -> str:
        return self.read("shared_file_storage_dir")

    def GetMaintainNodeHealth(self) -> bool:
        return self.read("maintain_node_health") == "True"

    def has_confd_on_all_nodes(self) -> bool:
        """Whether confd answers on all nodes; False where the master is of a version without that."""
        try:
            return self.read("confd_on_all_nodes") == "True"
        except ConfigurationError:
            return False

    def GetUidPool(self) -> str:
        """The definition of the pool, its parts on lines of their own, for `uidpool.ParseUidPool`."""
        return self.read("uid_pool")

    def GetReleaseVersion(self) -> str:
        return self.read("release_version")


def _position_of(directory: Path) -> int:
    try:
        text = (directory / POSITION_FILE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return -1
    return int(text) if text.isdecimal() else -1


def _write(path: Path, value: str, current: Path | None) -> None:
    """Write a synced file; one that says the same as in the current set is shared with it."""
    data = f"{value}\n".encode()
    before = None if current is None else current / path.name
    if before is not None and before.is_file() and before.read_bytes() == data:
        os.link(before, path)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _switch(link: Path, target: str) -> None:
    """Let a link point elsewhere, in one step."""
    temporary = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
    temporary.symlink_to(target)
    temporary.replace(link)


def _link_names(paths: Paths, values: Mapping[str, str]) -> None:
    """Let every value be found under its old name, and no other."""
    for name in values:
        link = paths.data / f"{PREFIX}{name}"
        if not link.is_symlink():
            _switch(link, f"{paths.ssconf.name}/{PREFIX}{name}")
    for link in paths.data.glob(f"{PREFIX}*"):
        if link.is_symlink() and link.name.removeprefix(PREFIX) not in values:
            link.unlink()


def _remove_old(paths: Paths) -> None:
    sets = [one for one in paths.data.glob("ssconf-*") if _SET.fullmatch(one.name)]
    current = paths.ssconf.resolve()
    old = sorted(
        (one for one in sets if one.resolve() != current), key=lambda one: one.stat().st_mtime
    )
    for one in old[: len(old) - KEPT_SETS + 1]:
        shutil.rmtree(one, ignore_errors=True)
