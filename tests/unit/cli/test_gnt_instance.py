import base64
import contextlib
import io
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from ganeti.cli.gnt_instance import console
from ganeti.cli.gnt_instance.show import INSTANCE_KIND
from ganeti.cli.gnt_instance.snapshots import snapshot_words
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.objects import described
from ganeti.model.instance_view import NicView
from tests.unit.cli.fake_master import FakeMaster, Run

CAPTURED_ADD = {
    "instance_name": "cap1.peer", "force_variant": False, "wait_for_sync": True,
    "name_check": False, "ignore_ipolicy": False, "opportunistic_locking": False,
    "beparams": {"memory": 16, "vcpus": 1}, "disks": [], "disk_template": "diskless",
    "group_name": None, "file_driver": None, "file_storage_dir": None, "hvparams": {},
    "hypervisor": None, "iallocator": None, "identify_defaults": False, "ip_check": False,
    "conflicts_check": True, "mode": "create", "nics": [], "no_install": True, "osparams": {},
    "osparams_private": {}, "osparams_secret": {}, "os_type": "peernoop+default",
    "pnode": "peernode1", "pnode_uuid": None, "snode": None, "snode_uuid": None,
    "source_handshake": None, "source_instance_name": None, "source_shutdown_timeout": 120,
    "source_x509_ca": None, "src_node": None, "src_node_uuid": None, "src_path": None,
    "compress": "none", "forthcoming": False, "commit": False, "tags": [],
    "instance_communication": False, "helper_startup_timeout": None,
    "helper_shutdown_timeout": None, "dry_run": False, "debug_level": 0, "priority": 0,
    "depends": None, "comment": None, "OP_ID": "OP_INSTANCE_CREATE",
}  # fmt: skip
"""What the original sends for the command below (`start` it sends as true; its job drops it)."""

ADD = (
    "add -t diskless -o peernoop+default --no-ip-check --no-name-check --no-nics"
    " -B memory=16,vcpus=1 -n peernode1 --no-install cap1.peer"
)


def submitted(master: FakeMaster) -> dict[str, Any]:
    [op] = master.args_of("SubmitJob")[0]
    found: dict[str, Any] = op
    del found["reason"]
    return found


def test_add_sends_the_opcode_of_upstream(master: FakeMaster, run: Run) -> None:
    master.job(result=["peernode1"])
    assert run(table, *ADD.split())[0] == 0
    ours = {
        "explain": False,
        "src_format": None,
        "src_backup": None,
        "src_unencrypted": False,
        "no_nics": False,
    }
    ours |= {"src_instance": None, "image": None}
    assert submitted(master) == {**CAPTURED_ADD, "start": False, **ours}


def test_clone_names_source_and_clone(master: FakeMaster, run: Run) -> None:
    master.job(result=["n2"])
    words = "clone -n n2 -t plain --disk 0:size=20g --net 0:link=br1 -B memory=64 --start --compress gzip-fast"
    assert run(table, *words.split(), "web1", "web2")[0] == 0
    op = submitted(master)
    assert (op["OP_ID"], op["mode"]) == ("OP_INSTANCE_CREATE", "clone")
    assert (op["src_instance"], op["instance_name"]) == ("web1", "web2")
    assert (op["pnode"], op["disk_template"], op["compress"]) == ("n2", "plain", "gzip-fast")
    assert op["disks"][0]["size"] == 20480
    assert op.get("start", True) is True


def test_clone_is_left_down(master: FakeMaster, run: Run) -> None:
    master.job(result=["n1"])
    _, out, _ = run(table, "clone", "--dry-run", "web1", "web2")
    op = submitted(master)
    assert (op["start"], op["nics"], op["disks"], op["dry_run"]) == (False, [], [], True)
    assert "would be on: n1" in out


def test_add_takes_disks_interfaces_and_parameters(master: FakeMaster, run: Run) -> None:
    master.job()
    words = (
        "add -t drbd -n n1:n2 --disk 0:size=10g --disk 1:size=512m,mode=ro --net 0:link=br1,ip=none"
        " -H kvm:kernel_path=/k,no_acpi -O a=1 --os-parameters-secret pw=x --tags=t1,t2 -o noop+x"
        " --file-storage-dir=sub --no-start web1"
    )
    assert run(table, *words.split())[0] == 0
    op = submitted(master)
    assert op["pnode"] == "n1"
    assert op["snode"] == "n2"
    assert [disk["size"] for disk in op["disks"]] == [10240, 512]
    assert op["disks"][1]["mode"] == "ro"
    (nic,) = op["nics"]
    given = {name: value for name, value in nic.items() if value is not None}
    assert given == {"mac": "auto", "link": "br1"}
    assert op["hypervisor"] == "kvm"
    assert op["hvparams"] == {"kernel_path": "/k", "acpi": False}
    assert op["osparams"] == {"a": "1"}
    assert op["osparams_secret"] == {"pw": "x"}
    assert op["tags"] == ["t1", "t2"]
    assert op["file_storage_dir"] == "sub"
    assert op["start"] is False


def test_without_a_word_about_it_an_instance_has_one_interface(
    master: FakeMaster, run: Run
) -> None:
    master.job()
    run(table, "add", "-t", "diskless", "-o", "noop", "web1")
    assert len(submitted(master)["nics"]) == 1


def test_the_old_options_for_sizes_and_memory_still_work(master: FakeMaster, run: Run) -> None:
    master.job()
    words = "add -t plain -o noop -m 2g --os-size 1g --swap-size 512m web1"
    code, _out, err = run(table, *words.split())
    assert code == 0
    op = submitted(master)
    assert op["beparams"] == {"memory": 2048}
    assert [disk["size"] for disk in op["disks"]] == [1024, 512]
    assert "-B memory=SIZE" in err
    assert "--disk" in err


@pytest.mark.parametrize(
    "words",
    [
        "--no-nics --net 0:link=br0",
        "-s 1g --disk 0:size=1g",
        "--swap-size 1g",
        "--disk 0:size=none",
        "-O flag",
        "-H :a=b",
    ],
)
def test_what_contradicts_itself_is_refused_before_the_master(
    master: FakeMaster, run: Run, words: str
) -> None:
    code, _out, err = run(table, "add", "-o", "noop", *words.split(), "web1")
    assert code == 1
    assert "error type: wrong_input" in err
    assert master.requests == []


def test_remove_asks_first(master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    master.job()
    master.replies["QueryInstances"] = [["web1.example.com"]]
    code, _out, err = run(table, "remove", "web1")
    assert code == 13
    assert "--force" in err
    assert "SubmitJob" not in master.methods()
    assert run(table, "remove", "-f", "web1")[0] == 0
    assert submitted(master)["instance_name"] == "web1.example.com"


def test_info_names_the_remedy_for_a_broken_migration() -> None:
    [line] = [one for one in INSTANCE_KIND.info if one.label == "Migration"]
    assert described([line], {"name": "web1", "migrating_to": None}) == []
    [said] = described([line], {"name": "web1", "migrating_to": "node2"})
    assert said == (
        "Migration",
        "with node2, not finished; if no job works on it, run: gnt-instance migrate --cleanup web1",
    )


def test_migrate_has_its_options(master: FakeMaster, run: Run) -> None:
    master.job()
    master.replies["QueryInstances"] = [["web1.example.com"]]
    assert run(table, "migrate", "-f", "-n", "node2", "--non-live", "web1")[0] == 0
    op = submitted(master)
    assert (op["target_node"], op["live"], op["cleanup"]) == ("node2", False, False)


def test_all_of_a_node_can_be_chosen_and_is_confirmed(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    master.job()
    master.replies["QueryInstances"] = [
        ["a", "n1", [], []], ["b", "n2", [], []], ["c", "n1", [], []],
    ]  # fmt: skip
    master.replies["QueryNodes"] = [["n1"]]
    code, _out, err = run(table, "reboot", "--node", "n1", "-t", "soft")
    assert code == 13
    assert "Reboot 2 instances (a, c)?" in err
    assert run(table, "reboot", "--node", "n1", "-t", "soft", "--force-multiple")[0] == 0
    jobs, _key = master.args_of("SubmitManyJobs")
    assert [(op["instance_name"], op["reboot_type"]) for [op] in jobs] == [
        ("a", "soft"),
        ("c", "soft"),
    ]


@pytest.mark.parametrize("words", [[], ["--all", "web1"], ["--node", "n1", "--all"]])
def test_the_selection_must_be_unique(master: FakeMaster, run: Run, words: list[str]) -> None:
    assert run(table, "startup", *words)[0] == 1
    assert master.requests == []


INFO = {
    "cap1.peer": {
        "name": "cap1.peer", "config_state": "down", "run_state": "down", "pnode": "peernode1",
        "pnode_group_uuid": "015f", "pnode_group_name": "default", "snodes": [],
        "snodes_group_uuids": [], "snodes_group_names": [], "os": "peernoop+default",
        "nics": [NicView(None, "n", None, "aa:00:00:00:00:01", "bridged", "br0", "", None, None)],
        "disk_template": "file",
        "disks": [{"dev_type": "file", "size": 1024, "mode": "rw", "logical_id": ["file", "/x"],
                   "name": None, "uuid": "d", "drbd_info": None, "on_secondary": None,
                   "on_primary": {"exists": True, "path": "/x", "problem": "", "sync": None}}],
        "hypervisor": "fake", "network_port": None, "hv_instance": {}, "hv_actual": {},
        "be_instance": {"minmem": 16, "maxmem": 16, "vcpus": 1},
        "be_actual": {"always_failover": False, "auto_balance": True, "maxmem": 16, "minmem": 16,
                      "spindle_use": 1, "vcpus": 1},
        "os_instance": {}, "os_actual": {}, "serial_no": 1, "mtime": 1795222502.6,
        "ctime": 1795222502.6, "uuid": "23cf266e",
    }
}  # fmt: skip


@pytest.mark.requirement("A64")
def test_info_shows_what_the_agent_in_the_guest_reports(master: FakeMaster, run: Run) -> None:
    said = {
        "host_name": "web1\x1b[2J", "os": "Debian GNU/Linux 12", "kernel": "",
        "interfaces": [{"name": "lo", "mac": "", "addresses": []},
                       {"name": "eth0", "mac": "", "addresses": ["192.0.2.7/24", "fe80::1/64"]}],
    }  # fmt: skip
    master.job(result={"cap1.peer": {**INFO["cap1.peer"], "guest_agent": said}})
    _, out, _ = run(table, "info", "cap1.peer")
    assert "\x1b" not in out
    assert "host name: web1" in out
    assert "operating system: Debian GNU/Linux 12" in out
    assert "addresses of eth0: 192.0.2.7/24, fe80::1/64" in out
    assert "addresses of lo" not in out


def test_info_explains_memory_that_the_node_took(master: FakeMaster, run: Run) -> None:
    memory = {"present": 640, "least": 512, "most": 1024, "lowered": None}
    master.job(result={"cap1.peer": {**INFO["cap1.peer"], "memory": memory}})
    _, out, _ = run(table, "info", "cap1.peer")
    assert "  Memory of the running guest: \n    present: 640M\n    bounds: 512M to 1.0G\n" in out
    assert "lowered" not in out
    lowered = {"before": 1024, "since": 1795222502.6, "goal": 2048}
    master.job(
        result={"cap1.peer": {**INFO["cap1.peer"], "memory": {**memory, "lowered": lowered}}}
    )
    _, out, _ = run(table, "info", "cap1.peer")
    why = "from 1.0G since 2026-11-21 00:55:02: its node keeps 2.0G free (memory_goal)"
    assert f"    lowered: {why}\n" in out


def test_info_looks_as_ever(master: FakeMaster, run: Run) -> None:
    master.job(result=INFO)
    code, out, _err = run(table, "show", "cap1.peer")
    assert code == 0
    assert out == (
        "- Instance name: cap1.peer\n"
        "  UUID: 23cf266e\n"
        "  Serial number: 1\n"
        "  Creation time: 2026-11-21 00:55:02\n"
        "  Modification time: 2026-11-21 00:55:02\n"
        "  State: configured to be down, actual state is down\n"
        "  Nodes: \n"
        "    - primary: peernode1\n"
        "      group: default (UUID 015f)\n"
        "    - secondaries: \n"
        "  Operating system: peernoop+default\n"
        "  Operating system parameters: \n"
        "  Allocated network port: None\n"
        "  Hypervisor: fake\n"
        "  Hypervisor parameters: \n"
        "  Back-end parameters: \n"
        "    always_failover: default (False)\n"
        "    auto_balance: default (True)\n"
        "    maxmem: 16\n"
        "    memory: default (16)\n"
        "    minmem: 16\n"
        "    spindle_use: default (1)\n"
        "    vcpus: 1\n"
        "  NICs: \n"
        "    - nic/0: \n"
        "      MAC: aa:00:00:00:00:01\n"
        "      IP: None\n"
        "      mode: bridged\n"
        "      link: br0\n"
        "      vlan: \n"
        "      network: None\n"
        "      UUID: n\n"
        "      name: None\n"
        "  Disk template: file\n"
        "  Disks: \n"
        "    - disk/0: file, size 1.0G\n"
        "      access mode: rw\n"
        "      logical_id: file, /x\n"
        "      on primary: /x, there\n"
        "      name: None\n"
        "      UUID: d\n"
    )
    [op] = master.args_of("SubmitJob")[0]
    assert (op["instances"], op["static"], op["use_locking"]) == (["cap1.peer"], False, True)


# --- the console ---

SOCAT = ["socat", "STDIO,raw,echo=0,escape=0x1d"]


def found_console(path: str, host: str = "node2.example.com") -> dict[str, Any]:
    command = [*SOCAT, f"UNIX-CONNECT:{path}"]
    return {"instance": "web1", "kind": "ssh", "host": host, "user": "root", "command": command}


def test_the_command_of_a_console_can_be_shown(master: FakeMaster, run: Run) -> None:
    master.replies["QueryInstances"] = [["web1", found_console("/run/x"), None, True]]
    code, out, _err = run(table, "console", "--show-cmd", "web1")
    assert code == 0
    assert out.startswith("ssh -q -oEscapeChar=none -t root@node2.example.com 'socat STDIO,raw")


def test_a_graphical_console_is_shown_to_an_administrator_and_to_a_script(
    master: FakeMaster, run: Run
) -> None:
    found = {"instance": "web1", "kind": "vnc", "host": "::1", "port": 11003, "display": 5103}
    master.replies["QueryInstances"] = [["web1", found, None, True]]
    code, out, _err = run(table, "console", "web1")
    assert (code, out) == (
        0, "Instance web1 has VNC on vnc://[::1]:11003/ (port 11003, display 5103)\n"
    )  # fmt: skip
    assert run(table, "console", "--show-cmd", "web1") == (0, "vnc://[::1]:11003/\n", "")


def test_a_picture_of_the_screen_is_saved_whole(
    master: FakeMaster, run: Run, tmp_path: Path
) -> None:
    master.replies["InstanceScreenshot"] = base64.b64encode(b"picture").decode()
    file = tmp_path / "screen.png"
    assert run(table, "console", "--screenshot", str(file), "web1") == (0, "", "")
    assert file.read_bytes() == b"picture"
    assert master.args_of("InstanceScreenshot") == ["web1"]
    code, _out, err = run(table, "console", "--screenshot", str(tmp_path / "no" / "x"), "web1")
    assert code == 1
    assert "cannot write the screenshot" in err


def test_a_hypervisor_without_a_console_reports_it(master: FakeMaster, run: Run) -> None:
    message = {"instance": "web1", "kind": "msg", "message": "no console"}
    master.replies["QueryInstances"] = [["web1", message, None, True]]
    assert run(table, "console", "web1") == (0, "no console\n", "")


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (["web1", found_console("/x"), None, False], "instance web1 is not running"),
        (["web1", None, None, True], "does not report an address"),
        (["web1", found_console("/nosuch", "node1.example.com"), None, True], "does not exist"),
    ],
)
def test_a_console_that_cannot_be_reached_explains_why(
    master: FakeMaster, run: Run, row: list[Any], text: str
) -> None:
    master.replies["QueryInstances"] = [row]
    code, _out, err = run(table, "console", "web1")
    assert code == 1
    assert text in err


def test_the_log_of_the_console_can_be_shown(master: FakeMaster, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_text("boot\nlogin:")
    master.replies["QueryInstances"] = [["web1", found_console("/x"), str(log), False]]
    code, out, _err = run(table, "console", "--log", "web1")
    assert (code, out) == (0, "boot\nlogin:")


class Guest:
    """The other end of a console: says something, and remembers what it is told."""

    def __init__(self, says: bytes) -> None:
        self.ours, self._theirs = socket.socketpair()
        self.heard = b""
        self._says = says
        self._thread = threading.Thread(target=self._talk)
        self._thread.start()

    def _talk(self) -> None:
        # Who leaves at once may be gone before we have said anything.
        with self._theirs, contextlib.suppress(BrokenPipeError):
            self._theirs.sendall(self._says)
            while data := self._theirs.recv(100):
                self.heard += data

    def end(self) -> None:
        self.ours.close()
        self._thread.join()


def pumped(guest: Guest, typed: bytes, *, escape: int | None = None) -> bytes:
    source, keyboard = os.pipe()
    screen, sink = os.pipe()
    os.write(keyboard, typed)
    os.close(keyboard)
    try:
        console.pump(guest.ours, source, sink, escape=escape)
    finally:
        os.close(source)
        os.close(sink)
        guest.end()
    shown = b""
    while data := os.read(screen, 65536):
        shown += data
    os.close(screen)
    return shown


def test_a_script_receives_the_guests_output_after_its_input_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "SILENCE_S", 0.05)
    guest = Guest(b"hello\r\n")
    assert pumped(guest, b"uptime\n") == b"hello\r\n"
    assert guest.heard == b"uptime\n"


def test_the_escape_leaves_at_once_and_is_not_sent() -> None:
    guest = Guest(b"")
    pumped(guest, b"\x1d", escape=console.ESCAPE)
    assert guest.heard == b""


def test_a_local_console_is_attached_without_ssh(
    master: FakeMaster, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "console"))
        listener.listen(1)

        def guest() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"hi there\n")
            connection.close()

        thread = threading.Thread(target=guest)
        thread.start()
        place = found_console(str(tmp_path / "console"))
        master.replies["QueryInstances"] = [["web1", place, None, True]]
        with Path(os.devnull).open(encoding="ascii") as nothing:
            monkeypatch.setattr("sys.stdin", nothing)
            with (tmp_path / "out").open("w") as sink, monkeypatch.context() as patch:
                patch.setattr("sys.stdout", sink)
                code = table.run(["console", "web1"])
        thread.join()
    assert code == 0
    assert (tmp_path / "out").read_text() == "hi there\n"


def test_modify_sends_changes_of_parameters_devices_and_memory(
    master: FakeMaster, run: Run
) -> None:
    master.job(result=[["be/memory", 512], ["disk/1", "remove"]])
    words = (
        "modify -B memory=512m,vcpus=default -H no_acpi,kernel_path=default -O a=1,-b"
        " --os-parameters-private pw=x --remove-os-parameters c,d -o noop+x --force-variant"
        " --disk add:size=1g,name=data --disk 0:add,size=512m --disk 1:remove --disk remove"
        " --disk data:mode=ro --disk=-2:modify,mode=rw"
        " --net add --net 0:link=br1,ip=none --net eth:remove -m 256m --no-hotplug --force web1"
    )
    code, out, _err = run(table, *words.split())
    assert code == 0
    assert out.splitlines() == [
        "Modified instance web1", " - be/memory -> 512", " - disk/1 -> remove",
    ]  # fmt: skip
    op = submitted(master)
    assert op["OP_ID"] == "OP_INSTANCE_SET_PARAMS"
    assert op["beparams"] == {"memory": 512, "vcpus": None}
    assert op["hvparams"] == {"acpi": False, "kernel_path": "default"}
    assert op["osparams"] == {"a": "1", "b": None}
    assert op["osparams_private"] == {"pw": "x"}
    assert op["remove_osparams"] == ["c", "d"]
    assert (op["os_name"], op["force_variant"], op["force"]) == ("noop+x", True, True)
    assert op["disks"] == [
        ["add", -1, {"size": 1024, "name": "data"}],
        ["add", 0, {"size": 512}],
        ["remove", 1, {}],
        ["remove", -1, {}],
        ["modify", "data", {"mode": "ro"}],
        ["modify", -2, {"mode": "rw"}],
    ]
    assert op["nics"] == [
        ["add", -1, {}],
        ["modify", 0, {"link": "br1", "ip": "none"}],
        ["remove", "eth", {}],
    ]
    assert op["runtime_mem"] == 256
    assert (op["hotplug"], op["hotplug_if_possible"], op["offline"]) == (False, False, None)


@pytest.mark.parametrize(
    ("words", "hotplug", "if_possible", "offline"),
    [
        ("", False, True, None),
        ("--hotplug", True, False, None),
        ("--hotplug-if-possible --offline", False, True, True),
        ("--no-hotplug --online", False, False, False),
    ],
)
def test_modify_changes_the_running_guest_where_it_may(
    master: FakeMaster, run: Run, words: str, hotplug: bool, if_possible: bool, offline: bool | None
) -> None:
    master.job(result=[])
    assert run(table, "modify", *words.split(), "web1")[0] == 0
    op = submitted(master)
    assert (op["hotplug"], op["hotplug_if_possible"]) == (hotplug, if_possible)
    assert op["offline"] is offline


@pytest.mark.parametrize(
    "words",
    [
        "--disk 0:add,remove",
        "--disk :mode=ro",
        "--disk add:size=x",
        "-O flag",
        "-m x",
        "--hotplug --no-hotplug",
    ],
)
def test_modify_refuses_what_has_no_meaning_before_the_master(
    master: FakeMaster, run: Run, words: str
) -> None:
    assert run(table, "modify", *words.split(), "web1")[0] == 1
    assert master.requests == []


def test_commands_about_disks_send_their_opcodes(master: FakeMaster, run: Run) -> None:
    master.job()
    assert run(table, "grow-disk", "--absolute", "web1", "1", "10g")[0] == 0
    op = submitted(master)
    assert (op["disk"], op["amount"], op["absolute"]) == (1, 10240, True)


_SNAPSHOT = {
    "name": "before-upgrade",
    "uuid": "u",
    "ctime": 1_700_000_000.0,
    "size": 768,
    "memory": None,
    "consistency": "agent",
    "disks": [{"uuid": "d", "size": 768}],
}


@pytest.mark.parametrize(
    ("words", "opcode", "fields"),
    [
        ("create web1 s1", "OP_INSTANCE_SNAPSHOT_CREATE", {"snapshot": "s1"}),
        ("create web1", "OP_INSTANCE_SNAPSHOT_CREATE", {}),
        ("create --memory web1 s1", "OP_INSTANCE_SNAPSHOT_CREATE", {"memory": True}),
        ("rollback -f --no-memory web1 s1", "OP_INSTANCE_SNAPSHOT_ROLLBACK", {"no_memory": True}),
        ("remove -f web1 s1", "OP_INSTANCE_SNAPSHOT_REMOVE", {"snapshot": "s1"}),
        (
            "rollback --force --stop --shutdown-timeout 5 web1 s1",
            "OP_INSTANCE_SNAPSHOT_ROLLBACK",
            {"snapshot": "s1", "stop": True, "shutdown_timeout": 5},
        ),
    ],
)
def test_snapshot_sends_the_opcode_of_its_action(
    master: FakeMaster, run: Run, words: str, opcode: str, fields: dict[str, Any]
) -> None:
    master.job(result=None)
    master.replies["QueryInstances"] = [["web1.example.com"]]
    assert run(table, "snapshot", *words.split())[0] == 0
    op = submitted(master)
    assert (op["OP_ID"], op["instance_name"]) == (opcode, "web1.example.com")
    assert {name: op.get(name) for name in fields} == fields


def test_snapshot_says_what_was_taken(master: FakeMaster, run: Run) -> None:
    master.job(result={"name": "s1", "consistency": "crash"})
    master.replies["QueryInstances"] = [["web1.example.com"]]
    code, out, _err = run(table, "snapshot", "create", "web1", "s1")
    assert code == 0
    assert "Snapshot s1 of web1.example.com: as after a loss of power" in out


def test_snapshot_list_shows_names_dates_sizes_and_what_they_contain(
    master: FakeMaster, run: Run
) -> None:
    master.replies["QueryInstances"] = [[[_SNAPSHOT]]]
    code, out, _err = run(table, "snapshot", "list", "--no-headers", "--separator=|", "web1")
    assert (code, out.split("|")[0], out.strip().split("|")[2:]) == (
        0,
        "before-upgrade",
        ["768M", "-", "agent"],
    )
    with_memory = {**_SNAPSHOT, "memory": 512, "consistency": "memory"}
    master.replies["QueryInstances"] = [[[with_memory]]]
    _code, out, _err = run(table, "snapshot", "list", "--no-headers", "--separator=|", "web1")
    assert out.strip().split("|")[2:] == ["768M", "512M", "memory"]
    assert snapshot_words(with_memory).endswith("768M and 512M of memory, with the guest's memory")
    master.replies["QueryInstances"] = [[[_SNAPSHOT]]]
    code, out, _err = run(table, "snapshot", "list", "--json", "web1")
    assert json.loads(out) == [_SNAPSHOT]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("drop web1", "must be create, list, rollback or remove"),
        ("remove web1", "name the snapshot"),
        ("rollback web1", "name the snapshot"),
        ("list web1 s1", "only the name of an instance"),
        ("create --stop web1 s1", "is only for rollback"),
        ("rollback --memory web1 s1", "is only for create"),
        ("rollback web1 s1", "lose all later data on its disks?"),
        ("remove web1 s1", "Remove snapshot s1 of web1.example.com?"),
    ],
)
def test_a_wrong_or_unconfirmed_snapshot_command_submits_nothing(
    master: FakeMaster, run: Run, words: str, text: str
) -> None:
    master.replies["QueryInstances"] = [["web1.example.com"]]
    code, _out, err = run(table, "snapshot", *words.split())
    assert code != 0
    assert text in err
    assert "SubmitJob" not in master.methods()


def test_recreate_disks_takes_disks_with_other_sizes_and_nodes(
    master: FakeMaster, run: Run
) -> None:
    master.job()
    words = "recreate-disks -f --disk 1 --disk 0:size=1g,mode=ro -n node2 web1"
    assert run(table, *words.split())[0] == 0
    op = submitted(master)
    assert op["disks"] == [1, [0, {"size": 1024, "mode": "ro"}]]
    assert op["nodes"] == ["node2"]


@pytest.mark.parametrize(
    ("words", "mode", "others"),
    [
        ("-p", "replace_on_primary", {}),
        ("-s --disks 0,2", "replace_on_secondary", {"disks": [0, 2]}),
        ("-a", "replace_auto", {}),
        (
            "-n node3 --early-release",
            "replace_new_secondary",
            {"remote_node": "node3", "early_release": True},
        ),
        ("-I hail", "replace_new_secondary", {"iallocator": "hail"}),
    ],
)
def test_replace_disks_reports_what_and_where_to(
    master: FakeMaster, run: Run, words: str, mode: str, others: dict[str, Any]
) -> None:
    master.job()
    assert run(table, "replace-disks", *words.split(), "web1")[0] == 0
    op = submitted(master)
    assert op["mode"] == mode
    assert {name: op[name] for name in others} == others


@pytest.mark.parametrize("words", ["", "-p -n node3"])
def test_replace_disks_wants_one_way(master: FakeMaster, run: Run, words: str) -> None:
    assert run(table, "replace-disks", *words.split(), "web1")[0] == 1
    assert master.requests == []


def test_activated_disks_are_printed_one_a_line(master: FakeMaster, run: Run) -> None:
    master.job(result=[["node1", "disk/0", "/srv/a"], ["node1", "disk/1", "/srv/b"]])
    code, out, _err = run(table, "activate-disks", "web1")
    assert (code, out) == (0, "node1:disk/0:/srv/a\nnode1:disk/1:/srv/b\n")


def test_deactivating_disks_can_be_forced(master: FakeMaster, run: Run) -> None:
    master.job()
    assert run(table, "deactivate-disks", "-f", "web1")[0] == 0
    assert submitted(master)["force"] is True
