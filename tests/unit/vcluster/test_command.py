"""What `ganeti-vcluster` says of words that it cannot follow."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.vcluster import command
from ganeti.vcluster.layout import plan


def test_a_program_that_does_not_exist_is_named_and_how_a_node_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = plan(Path("/tmp/c"), 2, hypervisor="fake", netns=False, guest=None)
    replace(cluster, directory=str(tmp_path)).save()
    monkeypatch.setattr(command, "stop_on_sigterm", lambda: None)
    words = ["ganeti-vcluster", "--dir", str(tmp_path), "shell", "1", "gnt-node", "list"]
    monkeypatch.setattr("sys.argv", words)
    assert command.main() == 1
    said = capsys.readouterr().err
    assert "program 1 does not exist on node1.vcluster.test" in said
    assert "shell --node 2 gnt-node list" in said
