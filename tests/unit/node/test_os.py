"""Calls about operating systems, with real scripts and the node's real tasks."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base.clock import SystemClock
from ganeti.base.errors import GuestOsError, InputError, StorageError
from ganeti.base.paths import Paths
from ganeti.base.process import run
from ganeti.guest_os.scripts import OsScripts
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.node import os as node_os
from ganeti.node import storage
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.tasks import Tasks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.disks import BLOCKDEV_CREATE, DiskArgs
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.programs import (
    OS_CREATE,
    OS_DIAGNOSE,
    OS_RENAME,
    OS_VALIDATE,
    OsCreateArgs,
    OsRenameArgs,
    OsValidateArgs,
    OsVerified,
)
from ganeti.storage.assemble import device

ROOT = "/srv/ganeti/file-storage"
DISK = DiskSpec(
    uuid="d", index=0, size=1, template="file", logical_id=("loop", f"{ROOT}/web1/disk0")
)
SPEC = InstanceSpec(
    name="web1.example.com",
    uuid="i",
    hypervisor="fake",
    os="tiny",
    memory=128,
    vcpus=1,
    hvparams={},
    disk_template="file",
    disks=(DISK,),
)
CREATE = OsCreateArgs(instance=SPEC, os="tiny", osparams={"ns1": "x"})
RENAME = OsRenameArgs(instance=SPEC, os="tiny", old_name="web0.example.com", osparams={})
CALL = Call(key="4/0/2")


class Node:
    def __init__(self, root: Path) -> None:
        self.paths = Paths(root)
        for directory in (self.paths.etc, self.paths.data, self.paths.below(ROOT)):
            directory.mkdir(parents=True)
        self.paths.file_storage_paths.write_text(f"{ROOT}\n")
        self.os = self.paths.os_search_path[0] / "tiny"
        self.os.mkdir(parents=True)
        (self.os / "ganeti_api_version").write_text("20\n")
        (self.os / "parameters.list").write_text("ns1 a name server\n")
        self.script("verify", "exit 0")
        self.script(
            "create", 'printf "%s" "$OSP_NS1" | dd of="$DISK_0_PATH" conv=notrunc 2>/dev/null'
        )
        self.tasks = Tasks(self.paths.tasks, SystemClock())
        disks, locks = partial(device, self.paths), InstanceLocks()
        scripts = OsScripts(self.paths.os_search_path, self.paths.log / "os", self.tasks, run)
        self.handlers: Handlers = {
            **node_os.handlers(scripts, disks, locks),
            **storage.handlers(disks, locks),
        }

    def script(self, name: str, body: str) -> None:
        (self.os / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.os / name).chmod(0o755)

    async def make_disk(self) -> None:
        args = DiskArgs(instance_name=SPEC.name, disk=DISK)
        await self.handlers[BLOCKDEV_CREATE.name](args, CALL)

    async def call(self, name: str, args: Any, call: Call = CALL) -> Any:
        return await self.handlers[name](args, call)

    def disk_begin(self) -> bytes:
        return self.paths.below(f"{ROOT}/web1/disk0").read_bytes()[:4]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    yield node
    await node.tasks.close()


async def test_create_writes_onto_the_disk_of_the_instance(node: Node) -> None:
    await node.make_disk()
    done = await node.call(OS_CREATE.name, CREATE)
    assert node.disk_begin() == b"x\0\0\0"
    assert done.tail == ""
    assert done.log_path.endswith("/os/create-tiny-web1.example.com-4-0-2.log")


@pytest.mark.requirement("G7")
async def test_a_repeated_create_does_not_run_the_script_again(node: Node) -> None:
    await node.make_disk()
    node.script("create", "echo ran >&2")
    first = await node.call(OS_CREATE.name, CREATE)
    assert await node.call(OS_CREATE.name, CREATE) == first
    assert first.tail == "ran"


async def test_failing_create_reports_the_script_output(node: Node) -> None:
    await node.make_disk()
    node.script("create", "echo I cannot >&2; exit 5")
    with pytest.raises(GuestOsError, match=r"ended with exit status 5(?s:.*)I cannot$"):
        await node.call(OS_CREATE.name, CREATE)


async def test_nothing_is_run_without_the_disk(node: Node) -> None:
    node.script("create", "touch ran")
    with pytest.raises(StorageError, match="the directory web1 does not exist"):
        await node.call(OS_CREATE.name, CREATE)
    assert not (node.os / "ran").exists()


async def test_an_os_that_is_not_there_is_an_error(node: Node) -> None:
    await node.make_disk()
    missing = msgspec.structs.replace(CREATE, os="missing")
    with pytest.raises(GuestOsError, match="OS missing does not exist"):
        await node.call(OS_CREATE.name, missing)


async def test_diagnosis_shows_good_and_bad_definitions(node: Node) -> None:
    (node.paths.os_search_path[1] / "broken").mkdir(parents=True)
    found = await node.call(OS_DIAGNOSE.name, Nothing())
    assert [(one.name, bool(one.problem)) for one in found] == [("broken", True), ("tiny", False)]


@pytest.mark.requirement("S146")
async def test_validation_asks_the_verify_script(node: Node) -> None:
    node.script("verify", '[ "$1" = parameters ] && [ "$OSP_NS1" = good ] || { echo bad; exit 1; }')
    args = OsValidateArgs(os="tiny", osparams={"ns1": "good"})
    assert await node.call(OS_VALIDATE.name, args, Call()) == OsVerified()
    with pytest.raises(GuestOsError, match=r"bad$"):
        await node.call(OS_VALIDATE.name, msgspec.structs.replace(args, osparams={"ns1": "x"}))


async def test_reinstallation_is_passed_to_the_script(node: Node) -> None:
    await node.make_disk()
    node.script("create", 'echo "again=${INSTANCE_REINSTALL-no}" >&2')
    assert (await node.call(OS_CREATE.name, CREATE)).tail == "again=no"
    again = msgspec.structs.replace(CREATE, reinstall=True)
    assert (await node.call(OS_CREATE.name, again, Call(key="5/0/1"))).tail == "again=1"


async def test_rename_passes_both_names_to_the_script(node: Node) -> None:
    await node.make_disk()
    node.script("rename", 'echo "$OLD_INSTANCE_NAME to $INSTANCE_NAME on $DISK_COUNT disk" >&2')
    done = await node.call(OS_RENAME.name, RENAME)
    assert done.tail == "web0.example.com to web1.example.com on 1 disk"
    assert done.log_path.endswith("/os/rename-tiny-web1.example.com-4-0-2.log")


@pytest.mark.requirement("S126")
async def test_definition_without_a_rename_script_is_reported(node: Node) -> None:
    await node.make_disk()
    with pytest.raises(GuestOsError, match="OS tiny has no script rename"):
        await node.call(OS_RENAME.name, RENAME)


@pytest.mark.parametrize("old_name", ["", "a\nb", "../x", "$(id)"])
async def test_an_old_name_that_is_none_reaches_no_script(node: Node, old_name: str) -> None:
    await node.make_disk()
    node.script("rename", "exit 0")
    with pytest.raises(InputError, match="old_name"):
        await node.call(OS_RENAME.name, msgspec.structs.replace(RENAME, old_name=old_name))
