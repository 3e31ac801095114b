"""gnt-cluster modify and its like: what is sent, what is shown."""

from typing import Any

import pytest

from ganeti.cli.gnt_cluster import table
from tests.unit.cli.fake_master import FakeMaster, Run


def sent(master: FakeMaster) -> dict[str, Any]:
    [op] = master.args_of("SubmitJob")[0]
    return {name: value for name, value in op.items() if value is not None}


def test_modify_sends_what_is_given(master: FakeMaster, run: Run) -> None:
    master.job()
    words = [
        "--enabled-hypervisors=fake,kvm", "-H", "kvm:acpi=false,-kernel_path", "-B", "memory=1g",
        "-N", "link=br1", "-C", "3", "-I", "", "--master-netdev=eth0", "--max-running-jobs=9",
        "--node-parameters=spindle_count=2", "-D", "drbd:protocol=A", "-D", "drbd:-metavg",
    ]  # fmt: skip
    assert run(table, "modify", *words)[0] == 0
    wanted = {
        "OP_ID": "OP_CLUSTER_SET_PARAMS",
        "enabled_hypervisors": ["fake", "kvm"],
        "hvparams": {"kvm": {"acpi": "false", "kernel_path": None}},
        "beparams": {"memory": 1024},
        "nicparams": {"link": "br1"},
        "diskparams": {"drbd": {"protocol": "A", "metavg": None}},
        "ndparams": {"spindle_count": "2"},
        "candidate_pool_size": 3,
        "default_iallocator": "",
        "master_netdev": "eth0",
        "max_running_jobs": 9,
    }
    op = sent(master)
    assert wanted.items() <= op.items()
    assert "mac_prefix" not in op
    assert "ipolicy" not in op


def test_modify_reads_policies(master: FakeMaster, run: Run) -> None:
    master.job()
    bounds = "min:memory-size=1g,cpu-count=1/max:memory-size=2g,cpu-count=4"
    words = [f"--ipolicy-bounds-specs={bounds}", "--ipolicy-std-specs=memory-size=512m"]
    words += ["--ipolicy-vcpu-ratio=2", "--ipolicy-disk-templates=file,diskless"]
    assert run(table, "modify", *words)[0] == 0
    assert sent(master)["ipolicy"] == {
        "minmax": [
            {
                "min": {"memory-size": 1024, "cpu-count": 1},
                "max": {"memory-size": 2048, "cpu-count": 4},
            }
        ],
        "std": {"memory-size": 512},
        "vcpu-ratio": 2.0,
        "disk-templates": ["file", "diskless"],
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["modify"], "nothing to change: pass at least one option"),
        (["modify", "--ipolicy-bounds-specs=most:a=1"], "must begin with min: or max:"),
        (["modify", "--ipolicy-std-specs=cpu-count=x"], "not a whole number"),
        (["add-tags"], "pass at least one tag"),
        (["add-tags", "--from=/nonexistent"], "does not exist"),
        (["watcher", "pause"], "pass a duration"),
        (["watcher", "pause", "soon"], "not a duration"),
        (["watcher", "sleep"], "must be pause, continue or info"),
    ],
)
def test_wrong_words_are_refused(master: FakeMaster, run: Run, words: list[str], text: str) -> None:
    code, _out, err = run(table, *words)
    assert (code, text in err) == (1, True), err
    assert master.requests == []


@pytest.mark.parametrize(
    ("words", "op_id"),
    [
        (["redist-conf"], "OP_CLUSTER_REDIST_CONF"),
        (["activate-master-ip"], "OP_CLUSTER_ACTIVATE_MASTER_IP"),
        (["deactivate-master-ip", "--yes"], "OP_CLUSTER_DEACTIVATE_MASTER_IP"),
    ],
)
def test_simple_jobs_are_sent(master: FakeMaster, run: Run, words: list[str], op_id: str) -> None:
    master.job()
    assert run(table, *words)[0] == 0
    assert sent(master)["OP_ID"] == op_id


def test_the_address_is_not_taken_away_by_mistake(master: FakeMaster, run: Run) -> None:
    assert run(table, "deactivate-master-ip")[0] == 13
    assert master.requests == []


def test_tags_are_searched_and_shown(master: FakeMaster, run: Run) -> None:
    master.job(result=[["/cluster", "a"], ["/nodes/node1", "ab"]])
    assert run(table, "search-tags", "^a") == (0, "/cluster a\n/nodes/node1 ab\n", "")
    assert sent(master)["pattern"] == "^a"
    master.job(result=[])
    assert run(table, "search-tags", "x")[0] == 1


def test_the_watcher_rests_and_continues(master: FakeMaster, run: Run) -> None:
    master.replies["SetWatcherPause"] = lambda until: until
    master.replies["QueryConfigValues"] = [1_700_000_000.0]
    code, out, _ = run(table, "watcher", "pause", "30m")
    assert (code, out.startswith("The watcher is paused until 2")) == (0, True)
    assert run(table, "watcher", "continue")[1] == "The watcher is no longer paused.\n"
    assert run(table, "watcher", "info")[1] == "The watcher is paused until 2023-11-14 22:13:20.\n"
    master.replies["QueryConfigValues"] = [None]
    assert run(table, "watcher", "info")[1] == "The watcher is not paused.\n"
    assert [args[0] for name, args in master.requests if name == "SetWatcherPause"][1] is None


@pytest.mark.requirement("S106", "S107")
def test_modify_sends_the_pool_of_user_ids_as_ranges(master: FakeMaster, run: Run) -> None:
    master.job()
    words = ["--uid-pool=61000-61002,62000", "--add-uids=7000", "--remove-uids=61001"]
    assert run(table, "modify", *words)[0] == 0
    op = sent(master)
    assert op["uid_pool"] == [[61000, 61002], [62000, 62000]]
    assert op["add_uids"] == [[7000, 7000]]
    assert op["remove_uids"] == [[61001, 61001]]


@pytest.mark.requirement("S105", "S106")
def test_an_empty_pool_can_be_given(master: FakeMaster, run: Run) -> None:
    master.job()
    assert run(table, "modify", "--uid-pool=")[0] == 0
    assert sent(master)["uid_pool"] == []


@pytest.mark.requirement("S107")
@pytest.mark.parametrize("text", ["5-1", "1-2-3", "x"])
def test_a_pool_that_cannot_be_read_is_refused_before_anything_is_sent(
    master: FakeMaster, run: Run, text: str
) -> None:
    assert run(table, "modify", f"--uid-pool={text}")[0] != 0
    assert master.requests == []


def test_ignored_options_of_upstream_are_marked(master: FakeMaster, run: Run) -> None:
    for words in (("modify", "--max-tracked-jobs=25"), ("renew-crypto", "--new-ssh-keys", "-f")):
        code, _out, err = run(table, *words)
        assert code == 0, err
        assert "no effect" in err or "no ssh keys to renew" in err
    assert master.requests == []
