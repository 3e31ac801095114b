"""The collectors' program: what it says of itself, and volumes whose instances a file names."""

import json
from pathlib import Path

import pytest

from ganeti.cli import mon_collector

VOLUMES = "".join(
    f"  uuid-{name};{name};-wi-ao;-1;-1;253;0;1073741824B;1;;;vg-uuid;xenvg;linear;0B;0;1073741824B;;;/dev/sda5(0)\n"
    for name in ("disk0", "disk1_data", "other")
)


def run(words: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        mon_collector.table.main(words)
    return int(ended.value.code or 0)


@pytest.mark.parametrize("words", [[], ["drbd"], ["diskstats"], ["lv"], ["inst-status-kvm"]])
def test_the_program_and_its_commands_report_what_they_are(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--version"]) == 0
    assert capsys.readouterr().out.startswith("mon-collector (ganeti) ")
    assert run([*words, "--help-completion"]) == 0
    assert "-h,--help none" in capsys.readouterr().out.splitlines()


def test_completion_knows_the_options_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lv", "--help-completion"]) == 0
    assert "-i,--instances file" in capsys.readouterr().out.splitlines()
    assert run(["--help-completion"]) == 0
    assert "choices=diskstats,drbd,lv," in capsys.readouterr().out


def disk(kind: str, *logical_id: str, children: object = ()) -> dict[str, object]:
    return {"dev_type": kind, "logical_id": list(logical_id), "children": children}


def test_a_file_names_the_owners_of_volumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = [{"name": "web1"}, [disk("plain", "xenvg", "disk0")]]
    mirror = disk("drbd", children=[disk("plain", "xenvg", "disk1_data")])
    (tmp_path / "lvs").write_text(VOLUMES)
    (tmp_path / "instances").write_text(json.dumps([first, [{"name": "web2"}, [mirror]]]))
    assert run(["lv", "-f", f"{tmp_path}/lvs", "-i", f"{tmp_path}/instances"]) == 0
    out = capsys.readouterr().out
    assert '"name":"disk0",' in out
    volumes = json.loads(out)["data"]
    assert {one["name"]: one["instance"] for one in volumes} == {
        "disk0": "web1", "disk1_data": "web2", "other": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "{", "[[1], []]", '[[{"name": "a"}]]', '[[{}, [{"dev_type": "plain"}]]]']
)
def test_a_file_of_instances_that_cannot_be_read_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lvs").write_text(VOLUMES)
    (tmp_path / "instances").write_text(text)
    assert run(["lv", "-f", f"{tmp_path}/lvs", "-i", f"{tmp_path}/instances"]) == 1
    assert "the file of -i must be [[instance, [disk, ...]], ...]" in capsys.readouterr().err
