import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.cli.command import CommandTable, run_guarded
from tests.unit.cli.fake_master import FakeMaster, Run, running_master


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No command of a test sees this machine; all show times in UTC."""
    for name in ("GNT_NODE_LIST", "GNT_INSTANCE_LIST", "FORCE_LUXI_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    monkeypatch.setenv("GANETI_LUXI_SOCKET", str(tmp_path / "luxi"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLUMNS", "80")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[FakeMaster]:
    with running_master(tmp_path / "luxi") as one:
        yield one


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(table: CommandTable, *words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = run_guarded(lambda: table.run(words))
        except SystemExit as end:
            code = int(end.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    return command
