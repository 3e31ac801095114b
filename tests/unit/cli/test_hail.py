import json
from pathlib import Path

import pytest

from ganeti.cli import hail


def answered(
    tmp_path: Path, message: bytes, capsys: pytest.CaptureFixture[str]
) -> dict[str, object]:
    path = tmp_path / "message"
    path.write_bytes(message)
    assert hail.main([str(path)]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_request_of_an_unknown_type_is_answered_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answered(tmp_path, b'{"request": {"type": "dance"}}', capsys)
    assert found["success"] is False
    assert "dance" in str(found["info"])


@pytest.mark.parametrize("message", [b"{}", b"[]", b'{"request": {"type": "allocate"}}'])
def test_a_message_that_lacks_something_is_answered_no(
    tmp_path: Path, message: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answered(tmp_path, message, capsys)
    assert found["success"] is False
    assert "cannot be used" in str(found["info"])


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--help"]])
def test_one_file_is_wanted(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert hail.main(words) == 2
    assert "Usage" in capsys.readouterr().err


def test_what_is_no_message_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hail.main([str(tmp_path / "nosuch")]) == 1
    (tmp_path / "x").write_bytes(b"not JSON")
    assert hail.main([str(tmp_path / "x")]) == 1
    assert capsys.readouterr().out == ""
