"""What a run decides before it does anything."""

import io
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError, PrereqError
from ganeti.bootstrap.merge.messages import Facts
from ganeti.bootstrap.merge.program import main, parser
from ganeti.bootstrap.merge.session import _names, _passwords, check_cluster

OURS = Facts(
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
def test_each_cluster_has_its_own_line_of_passwords_whoever_is_asked(
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
        ({"jobs": [7, 8]}, "2 jobs have not ended there, as 7"),
    ],
)
def test_a_cluster_that_cannot_be_merged_is_told_why(changes: dict[str, object], why: str) -> None:
    theirs = replace(OURS, cluster="theirs", uuid="2")
    check_cluster(theirs, "host", OURS)
    with pytest.raises(PrereqError, match=why):
        check_cluster(replace(theirs, **changes), "host", OURS)


def test_names_are_given_as_pairs() -> None:
    assert _names(["c2/default=east", "a=b"], "--group") == {"c2/default": "east", "a": "b"}
    for wrong in ("a", "=b", "a="):
        with pytest.raises(InputError, match="must be NAME=NEW"):
            _names([wrong], "--group")


def test_a_host_without_a_state_is_told_where_to_run_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    assert main(["c2"]) == 1
    assert "run this on the master" in capsys.readouterr().err
