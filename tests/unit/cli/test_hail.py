import json
import subprocess
import sys
from pathlib import Path

import placement_clusters as clusters
import pytest

from ganeti.cli import hail


def answered(
    tmp_path: Path, message: bytes, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, object]:
    path = tmp_path / "message"
    path.write_bytes(message)
    assert hail.main([*words, str(path)]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def allocation(**changes: object) -> bytes:
    given = clusters.message(clusters.cluster(4), clusters.allocation("plain") | changes)
    return clusters.encoded(given)


@pytest.mark.requirement("S161", "S163", "S176", "S183")
def test_a_message_in_a_file_is_answered_with_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answered(tmp_path, allocation(), capsys)
    assert found.keys() == {"success", "info", "result"}
    assert (found["success"], len(str(found["result"]).split(","))) == (True, 1)


@pytest.mark.requirement("S169")
@pytest.mark.parametrize(
    "message",
    [
        allocation(type="dance"),
        b"{}",
        b"[]",
        b"not JSON",
        b'{"request": {"type": "allocate"}}',
        b"[" * 100_000,
        allocation(memory="much"),
        allocation(memory=None),
        allocation(disks=7),
        allocation(required_nodes=3),
    ],
)
def test_a_message_that_cannot_be_used_is_a_failure_and_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], message: bytes
) -> None:
    path = tmp_path / "message"
    path.write_bytes(message)
    assert hail.main([str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert "Traceback" not in err


def test_what_cannot_be_placed_is_answered_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answered(tmp_path, allocation(disk_template="moon"), capsys)
    assert (found["success"], found["result"]) == (False, [])
    assert str(found["info"]).startswith("Request failed: ")


def test_only_named_nodes_are_allocated_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--restrict-allocation-to=node0002", "--no-capacity-checks"]
    assert answered(tmp_path, allocation(), capsys, *words)["result"] == ["node0002"]


@pytest.mark.parametrize(("words", "code"), [([], 1), (["a", "b"], 1), (["--nonsense", "a"], 2)])
def test_one_file_is_wanted(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        hail.main(words)
    assert ended.value.code == code
    is_option = words[0].startswith("-") if words else False
    assert ("usage" in capsys.readouterr().err) == is_option


def test_a_file_that_is_not_there_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hail.main([str(tmp_path / "nosuch")]) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("tool", ["hail", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace"])
def test_help_loads_no_numpy(tool: str) -> None:
    code = f"""
import sys
from ganeti.cli.{tool} import main
try:
    main(["--help"])
except SystemExit as ended:
    print(ended.code, "numpy" in sys.modules)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 False\n")
