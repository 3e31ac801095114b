"""gnt-image, and gnt-instance add --image: what they submit and print."""

from pathlib import Path
from typing import Any

import pytest

from ganeti.cli.gnt_image import table as gnt_image
from ganeti.cli.gnt_instance.table import table as gnt_instance
from tests.unit.cli.fake_master import FakeMaster, Run, rows_of

INFO = {
    "name": "box", "uuid": "u-1", "serial_no": 3, "description": "A box", "size": 2048, "stored": 700,
    "disk.sha256": ["0a", "0b"], "disk_size": 4096, "firmware": "uefi", "cloud_init": True,
    "node_list": ["node1", "node2"],
}  # fmt: skip
URL = "https://images.example.com/box.qcow2"


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (
            ["import", "--format=qcow2", "--digest=00", "-n", "node2", "--description=A box", "--disk-size=10g",
             "--firmware=uefi", "--cloud-init=no", "box", URL],
            {"OP_ID": "OP_IMAGE_IMPORT", "image_name": "box", "source": URL, "source_format": "qcow2",
             "digest": "00", "node": "node2", "description": "A box", "disk_size": 10240, "firmware": "uefi",
             "cloud_init": False},
        ),
        (
            ["modify", "--description=", "--firmware=none", "box"],
            {"OP_ID": "OP_IMAGE_SET_PARAMS", "description": "", "firmware": "none", "cloud_init": None},
        ),
        (["rename", "box", "crate"], {"OP_ID": "OP_IMAGE_RENAME", "new_name": "crate"}),
        (["remove", "-f", "box"], {"OP_ID": "OP_IMAGE_REMOVE", "image_name": "box"}),
        (["copy", "box", "node1", "node2"], {"OP_ID": "OP_IMAGE_COPY", "nodes": ["node1", "node2"]}),
        (
            ["export", "--format=raw", "box", "/srv/ganeti/images/box.raw"],
            {"OP_ID": "OP_IMAGE_EXPORT", "path": "/srv/ganeti/images/box.raw", "target_format": "raw"},
        ),
    ],
)  # fmt: skip
def test_options_become_the_opcode(
    master: FakeMaster, run: Run, words: list[str], fields: dict[str, Any]
) -> None:
    master.job()
    assert run(gnt_image, *words)[0] == 0
    [op] = master.args_of("SubmitJob")[0]
    assert {name: op[name] for name in fields} == fields


def uploads(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("srv/ganeti/image-uploads/*"))


@pytest.mark.parametrize(
    ("status", "words", "left"),
    [("success", [], 0), ("error", [], 0), ("success", ["--submit"], 1)],
    ids=["success", "failure", "later"],
)
def test_file_of_this_host_is_copied_for_the_job(
    master: FakeMaster, run: Run, tmp_path: Path, status: str, words: list[str], left: int
) -> None:
    source, seen = tmp_path / "box.qcow2", list[bytes]()
    source.write_bytes(b"content")

    def submit(ops: list[dict[str, Any]], _key: str | None = None) -> int:
        ident = ops[0]["source"].removeprefix("upload:")
        seen.append((tmp_path / "srv/ganeti/image-uploads" / ident).read_bytes())
        return 7

    master.job(status=status)
    master.replies["SubmitJob"] = submit
    code = run(gnt_image, "import", *words, "box", str(source))[0]
    assert ((code == 0), seen) == (status == "success", [b"content"])
    assert len(uploads(tmp_path)) == left
    assert source.exists()


def test_file_that_the_node_may_read_is_not_copied(
    master: FakeMaster, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "srv/ganeti/images"
    directory.mkdir(parents=True)
    (directory / "box").write_bytes(b"content")
    monkeypatch.chdir(directory)
    path = "/srv/ganeti/images/box"
    for words, source in (
        ([str(directory / "box")], path),
        (["box"], path),
        ([path], path),
        (["-n", "node2", str(tmp_path / "luxi")], str(tmp_path / "luxi")),
        (["missing"], "missing"),
        ([f"upload:{'0' * 32}"], f"upload:{'0' * 32}"),
    ):
        master.requests.clear()
        master.job()
        assert run(gnt_image, "import", *words[:-1], "box", words[-1])[0] == 0
        assert master.args_of("SubmitJob")[0][0]["source"] == source
    assert uploads(tmp_path) == []


def test_removal_asks_first(master: FakeMaster, run: Run) -> None:
    assert run(gnt_image, "remove", "box")[0] != 0
    assert master.requests == []


def test_info_shows_digests_and_copies(master: FakeMaster, run: Run) -> None:
    master.replies["QueryImages"] = rows_of(INFO)
    code, out, _err = run(gnt_image, "info", "box")
    assert code == 0
    for line in (
        "Image name: box",
        "Size of its disks: 2.0G",
        "SHA-256: 0a, 0b",
        "Nodes: node1, node2",
    ):
        assert line in out


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ([], {"image": "box", "disks": [], "nics": [], "no_nics": False, "os_type": None}),
        (["--no-nics"], {"nics": [], "no_nics": True}),
        (
            ["-O", "ssh_key=k", "--disk", "0:size=1g"],
            {"osparams": {"ssh_key": "k"}, "no_nics": False},
        ),
    ],
)
def test_instance_is_added_with_an_image(
    master: FakeMaster, run: Run, words: list[str], fields: dict[str, Any]
) -> None:
    master.job()
    assert run(gnt_instance, "add", "--image=box", "-n", "node1", *words, "web1")[0] == 0
    [op] = master.args_of("SubmitJob")[0]
    assert {name: op[name] for name in fields} == fields
