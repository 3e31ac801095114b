"""Tools of one page."""

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ganeti.base import certificates
from ganeti.base.paths import Paths
from ganeti.tools import check_cert_expired, fmtjson, query_config
from tests.support.confd_port import serving

DAY_S = 24 * 3600.0


@pytest.mark.parametrize(("begins", "lifetime_s", "status"), [
    (-2 * DAY_S, DAY_S, 0),
    (0.0, DAY_S, 1),
    (200.0, DAY_S, 1),
    (2 * DAY_S, DAY_S, 0),
])  # fmt: skip
def test_an_expired_certificate_is_a_success(
    tmp_path: Path, begins: float, lifetime_s: float, status: int
) -> None:
    key = certificates.new_key()
    moment = time.time() + begins
    content = certificates.self_signed(key, "web1.example.com", moment, lifetime_s)
    path = tmp_path / "cert.pem"
    path.write_bytes(key + content)
    assert check_cert_expired.main([str(path)]) == status


def test_what_cannot_be_read_has_not_expired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_cert_expired.main([str(tmp_path / "none")]) == 1
    (tmp_path / "text").write_text("text")
    assert check_cert_expired.main([str(tmp_path / "text")]) == 1
    assert "not a certificate" in capsys.readouterr().err


def test_json_is_sorted_and_indented(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"b":[1,{}],"a":"\xc3\xa9"}')))
    assert fmtjson.main([]) == 0
    said = capsys.readouterr().out
    assert said == '{\n  "a": "\\u00e9",\n  "b": [\n    1,\n    {}\n  ]\n}\n'
    assert json.loads(said) == {"a": "é", "b": [1, {}]}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{")))
    assert fmtjson.main([]) == 1


def test_values_are_asked_of_confd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    paths = Paths(tmp_path)
    with serving(paths) as port:
        words = [f"--port={port}", "/master", "/cluster/cluster_name"]
        assert query_config.main(words) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "/master              \tnode1.example.com"
        assert said[1].startswith("/cluster/cluster_name\t")
        key = paths.confd_key.read_text()
        paths.confd_key.unlink()
        assert query_config.main(words) == 1
        assert query_config.main([*words, "--hmac", key.strip()]) == 0
        assert query_config.main([f"--port={port}", "--hmac", key, "/cluster/rapi"]) == 1
        assert "there is no /cluster/rapi" in capsys.readouterr().err


@pytest.mark.parametrize(
    "module",
    [
        "check_cert_expired",
        "cfgupgrade",
        "cleaner",
        "ensure_dirs",
        "fmtjson",
        "listrunner",
        "lvmstrap",
        "node_cleanup",
        "query_config",
        "sanitize_config",
    ],
)
def test_help_loads_nothing_heavy(module: str) -> None:
    heavy = {"asyncio", "asyncssh", "msgspec", "cryptography", "sqlite3"}
    if module in (
        "cleaner",
        "listrunner",
        "lvmstrap",
        "node_cleanup",
        "query_config",
        "sanitize_config",
    ):
        heavy -= {"asyncio"}
    program = (
        f"import sys; import ganeti.tools.{module} as tool\n"
        "try: tool.main(['--help'])\n"
        "except SystemExit as err: assert err.code == 0\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
    assert "usage: " in done.stdout
