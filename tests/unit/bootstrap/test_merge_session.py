"""What a run decides before it does anything."""

import io
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.merge import session
from ganeti.bootstrap.merge.agent import Agent
from ganeti.bootstrap.merge.journal import ClusterRecord, Journal, MergeChoices
from ganeti.bootstrap.merge.messages import HostFacts
from ganeti.bootstrap.merge.program import main, parser
from ganeti.bootstrap.merge.session import (
    _choices,
    _forget,
    _keep_backups,
    _names,
    _passwords,
    check_apart,
    check_cluster,
)

OURS = HostFacts(
    cluster="ours",
    uuid="1",
    version="4.0",
    state="embedded",
    nodes=[],
    instances=[],
    running=[],
    jobs=[],
)


@pytest.mark.requirement("S34")
def test_each_cluster_has_its_own_password_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args = parser().parse_args(["--password-stdin", "c2", "c3"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("two\nthree \n"))
    ask = _passwords(args, args.clusters)
    assert [ask("c3"), ask("c2"), ask("c3")] == ["three ", "two", "three "]
    args = parser().parse_args(["--password-stdin", "c2", "c3", "c4"])
    with pytest.raises(InputError, match="no password for c4"):
        _passwords(args, args.clusters)("c4")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"uuid": "1"}, "it is this cluster"),
        ({"version": "5.0"}, "upgrade one of them first"),
        ({"state": "etcd"}, "its state is in etcd"),
        ({"jobs": [7, 8]}, "2 jobs have not ended there, for example 7"),
    ],
)
def test_cluster_that_cannot_be_merged_is_refused_with_the_reason(
    changes: dict[str, object], why: str
) -> None:
    theirs = replace(OURS, cluster="theirs", uuid="2")
    check_cluster(theirs, "host", OURS)
    with pytest.raises(PrereqError, match=why):
        check_cluster(replace(theirs, **changes), "host", OURS)


def test_names_are_given_as_pairs() -> None:
    assert _names(["c2/default=east", "a=b"], "--group") == {"c2/default": "east", "a": "b"}
    for wrong in ("a", "=b", "a="):
        with pytest.raises(InputError, match="must be NAME=NEW"):
            _names([wrong], "--group")


def test_host_without_a_state_is_referred_to_the_master(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    assert main(["c2"]) == 1
    assert "run the command on the master" in capsys.readouterr().err


def under_way(root: Path, *begun: str) -> Paths:
    """A master on which a merge was cut short."""
    paths = Paths(root)
    paths.merge.mkdir(parents=True)
    paths.state.parent.mkdir(parents=True, exist_ok=True)
    paths.state.touch()
    record = ClusterRecord(contact="c2", name="c2.example.com", uuid="2", nodes=[])
    Journal(
        id="1", choices=MergeChoices(), clusters=[record], public_key="key", begun=list(begun),
        path=str(paths.merge / "journal.json"),
    ).save()  # fmt: skip
    return paths


@pytest.mark.requirement("S46")
def test_a_dry_run_does_nothing_to_a_merge_under_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = under_way(tmp_path, "keys", "watchers")
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    before = (paths.merge / "journal.json").read_bytes()
    assert main(["--dry-run"]) == 0
    assert "would do: Stopping the instances of the other clusters" in capsys.readouterr().out
    assert main(["--rollback", "--dry-run"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in said[1:]] == [
        "would undo: Pausing the watchers",
        "would undo: Adding the key of the merge to the authorized keys of all nodes",
    ]
    assert (paths.merge / "journal.json").read_bytes() == before


def test_what_a_merge_left_that_was_killed_before_it_began_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = under_way(tmp_path)
    (paths.merge / "journal.json").unlink()
    (paths.merge / "key").write_text("secret")
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    assert main(["--rollback"]) == 1
    assert not paths.merge.exists()


@pytest.mark.asyncio
async def test_no_key_is_made_before_a_merge_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = under_way(tmp_path)
    (paths.merge / "journal.json").unlink()
    seen: list[bool] = []

    async def contact(*_args: object) -> ClusterRecord:
        seen.append((paths.merge / "key").exists())
        return ClusterRecord(contact="c2", name="c2.example.com", uuid="2", nodes=[])

    async def plan(*_args: object) -> None:
        seen.append((paths.merge / "key").exists())

    monkeypatch.setattr(session, "_contact", contact)
    monkeypatch.setattr(session, "_say_plan", plan)
    monkeypatch.setattr(Agent, "facts", lambda _self: OURS)
    args = parser().parse_args(["--force", "c2"])
    journal = await session._begin(session.Session(paths, lambda _contact: ""), args)
    assert seen == [False, False]
    assert journal is not None
    assert (paths.merge / "key").exists()


def test_a_rollback_of_another_merge_or_of_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = under_way(tmp_path, "keys")
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    assert main(["--rollback", "c3"]) == 1
    assert "a merge of c2 is in progress" in capsys.readouterr().err
    (paths.merge / "journal.json").unlink()
    assert main(["--rollback"]) == 1
    assert "no merge is in progress" in capsys.readouterr().err


def test_one_cluster_is_named_once() -> None:
    one = ClusterRecord(contact="c2", name="c2.example.com", uuid="2", nodes=[])
    check_apart([one, ClusterRecord(contact="c3", name="c3.example.com", uuid="3", nodes=[])])
    with pytest.raises(PrereqError, match=r"c2 and 192\.0\.2\.2 are the same cluster"):
        check_apart([one, ClusterRecord(contact="192.0.2.2", name=one.name, uuid="2", nodes=[])])


@pytest.mark.requirement("S39")
def test_states_of_former_merges_outlive_later_ones(tmp_path: Path) -> None:
    paths = under_way(tmp_path)
    for text in ("1", "2"):
        (paths.merge / "ours.backup").write_text(text)
        (paths.merge / "key").write_text("secret")
        journal = Journal(id=text, choices=MergeChoices(), clusters=[], public_key="key")
        assert _keep_backups(paths, journal) == paths.merge / text
        _forget(paths)
        assert {path.name for path in paths.merge.iterdir()} <= {"1", "2"}
    (paths.merge / "ours.backup").write_text("3")  # of a merge that was taken back
    _forget(paths)
    kept = sorted(path.read_text() for path in paths.merge.rglob("ours.backup"))
    assert kept == ["1", "2"]


def test_a_disk_that_is_full_is_an_error_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def full(*_args: object) -> int:
        raise OSError(28, "No space left on device", "/var/lib/ganeti/merge/key")

    monkeypatch.setattr("ganeti.bootstrap.merge.session.merge_clusters", full)
    assert main(["c2"]) == 1
    assert capsys.readouterr().err == (
        "Failure: /var/lib/ganeti/merge/key: No space left on device\n"
    )


@pytest.mark.parametrize("option", ["--shutdown-timeout=-5", "--ssh-port=0", "--ssh-port=65536"])
def test_invalid_numbers_are_refused_before_any_contact(option: str) -> None:
    args = parser().parse_args([option, "c2"])
    with pytest.raises(InputError, match=option.partition("=")[0]):
        _choices(args)


def test_only_a_merge_under_way_leaves_out_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = under_way(tmp_path, "keys")
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    assert main(["--without=n9"]) == 1
    assert "'n9' is not a node of a merging cluster" in capsys.readouterr().err
    (paths.merge / "journal.json").unlink()
    assert main(["--without=n9", "c2"]) == 1
    assert "needs a merge that is in progress" in capsys.readouterr().err
