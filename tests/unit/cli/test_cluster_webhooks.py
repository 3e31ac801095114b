"""gnt-cluster webhook: what it submits and prints."""

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.cli.cluster_webhooks import WEBHOOK_KIND
from ganeti.cli.gnt_cluster import table
from ganeti.clients.fields import WEBHOOK
from tests.unit.cli.fake_master import FakeMaster, Run

URL = "https://hooks.example.com/ganeti"
SECRET = "0123456789abcdef"


def submitted(master: FakeMaster) -> dict[str, Any]:
    """The only opcode of the only job."""
    [op] = master.args_of("SubmitJob")[0]
    assert isinstance(op, dict)
    return op


@pytest.mark.parametrize(("words", "kind", "fields"), [
    (["modify", "chat", "--kinds=job,node", "--names=web*"], "SET_PARAMS", {"kinds": ["job", "node"], "names": ["web*"]}),
    (["modify", "chat", "--groups=", "--allow-local=yes"], "SET_PARAMS", {"groups": [], "allow_local": True}),
    (["pause", "chat"], "SET_PARAMS", {"is_paused": True}),
    (["resume", "chat"], "SET_PARAMS", {"is_paused": False}),
    (["remove", "chat"], "REMOVE", {}),
])  # fmt: skip
def test_webhook_submits_what_it_is_given(
    words: list[str], kind: str, fields: dict[str, Any], master: FakeMaster, run: Run
) -> None:
    master.job()
    assert run(table, "webhook", *words)[0] == 0
    op = submitted(master)
    assert (op["OP_ID"], op["webhook_name"]) == (f"OP_WEBHOOK_{kind}", "chat")
    assert op.items() >= fields.items()
    assert not op.get("secret")


def test_add_makes_a_secret_and_prints_it_once(master: FakeMaster, run: Run) -> None:
    master.job()
    code, out, _err = run(table, "webhook", "add", "chat", f"--url={URL}")
    secret = str(submitted(master)["secret"])
    assert code == 0
    assert len(secret) >= 32
    assert out == f"Secret of webhook chat, which is not shown again: {secret}\n"


def test_secret_is_shown_of_a_job_that_is_only_submitted(master: FakeMaster, run: Run) -> None:
    master.job()
    _code, out, _err = run(table, "webhook", "add", "chat", f"--url={URL}", "--submit")
    assert str(submitted(master)["secret"]) in out


def test_secret_of_a_webhook_that_is_refused_is_not_shown(master: FakeMaster, run: Run) -> None:
    master.job(status="error", result=["OpPrereqError", ["exists", "already_exists"]])
    code, out, _err = run(table, "webhook", "add", "chat", f"--url={URL}")
    assert (code, "Secret" in out) == (1, False)


def test_secret_comes_from_a_file(master: FakeMaster, run: Run, tmp_path: Path) -> None:
    master.job()
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    code, out, _err = run(table, "webhook", "add", "chat", f"--url={URL}", f"--secret-file={path}")
    assert (code, out) == (0, "")
    assert submitted(master)["secret"] == SECRET


@pytest.mark.parametrize("content", ["PEM", ""])
def test_authorities_come_from_a_file_and_an_empty_word_removes_them(
    master: FakeMaster, run: Run, tmp_path: Path, content: str
) -> None:
    master.job()
    path = tmp_path / "ca.pem"
    path.write_text(content)
    word = f"--ca-file={path if content else ''}"
    assert run(table, "webhook", "modify", "chat", word)[0] == 0
    assert submitted(master)["authorities"] == content


def test_test_shows_the_answer(master: FakeMaster, run: Run) -> None:
    master.job(result={"status": 204, "seconds": 0.25})
    code, out, _err = run(table, "webhook", "test", "chat")
    assert (code, out) == (0, "Webhook chat: status 204 in 0.250 s\n")


@pytest.mark.parametrize(("words", "why"), [
    (["stop", "chat"], "must be one of: list, add"),
    (["remove"], "name the webhook"),
    (["pause", "chat", "--kinds=job"], "only for add and modify"),
    (["test", "chat", "--secret-file=-"], "only for add and modify"),
    (["test", "chat", "--ca-file=x"], "only for add and modify"),
    (["modify", "chat", "--ca-file=-", "--secret-file=-"], "can be standard input"),
])  # fmt: skip
def test_webhook_refuses_words_without_a_meaning(
    words: list[str], why: str, master: FakeMaster, run: Run
) -> None:
    code, _out, err = run(table, "webhook", *words)
    assert code == 1
    assert why in err
    assert master.methods() == []


def test_info_shows_the_last_error(master: FakeMaster, run: Run) -> None:
    found = {
        **dict.fromkeys(WEBHOOK), "name": "chat", "url": URL, "kinds": ["job"], "verify_tls": True, "state": "failing",
        "authorities": "-----BEGIN CERTIFICATE-----\n", "failures": 3, "error": "status 500", "failing_since": 1.8e9, "gaps": 0,
    }  # fmt: skip
    asked = list(dict.fromkeys(name for line in WEBHOOK_KIND.info for name in line.fields))
    master.replies["QueryWebhooks"] = [[found[name] for name in asked]]
    code, out, _err = run(table, "webhook", "info", "chat")
    assert code == 0
    for text in (
        "Webhook: chat",
        "Names of objects: all",
        "its own certificates (1)",
        "Last error: status 500",
        "2027-01-15",
    ):
        assert text in out
    master.replies["QueryWebhooks"] = [[found[name] for name in WEBHOOK]]
    code, out, _err = run(table, "webhook", "info", "--json")
    assert (code, json.loads(out)[0]["state"]) == (0, "failing")
