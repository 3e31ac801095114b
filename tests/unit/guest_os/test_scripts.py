"""Running the scripts of a definition; the scripts are real."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from ganeti.base.errors import GuestOsError, InputError
from ganeti.base.process import Completed, run
from ganeti.guest_os.scripts import TAIL_BYTES, DiskOfScript, OsChoice, OsScripts, read_tail
from ganeti.model.instance_spec import DiskSpec, InstanceSpec

SPEC = InstanceSpec(
    name="web1.example.com",
    uuid="instance-1",
    hypervisor="kvm",
    os="tiny",
    memory=128,
    vcpus=1,
    hvparams={},
    disks=(DiskSpec(uuid="d", index=0, size=1, template="file", logical_id=("loop", "/x")),),
)
KEY = "12/0/3"


class DirectTasks:
    """Runs the program at once, as the node's tasks would."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def run(
        self,
        key: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        log_path: Path,
        timeout_s: float,
        stdout_path: Path | None = None,
    ) -> int:
        self.keys.append(key)
        done = await run(argv, env=env, timeout_s=timeout_s, check=False)
        assert stdout_path is not None
        await asyncio.to_thread(stdout_path.write_bytes, done.stdout)
        await asyncio.to_thread(log_path.write_bytes, done.stderr)
        return done.status


class Node:
    """A node with one OS definition."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "os" / "tiny"
        self.directory.mkdir(parents=True)
        self.file("ganeti_api_version", "20\n")
        self.file("parameters.list", "ns1 a name server\n")
        self.script("create", "true")
        self.script("verify", "true")
        self.tasks = DirectTasks()
        self.scripts = OsScripts((root / "os",), root / "log" / "os", self.tasks, run)

    def file(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def script(self, name: str, body: str) -> None:
        self.file(name, f"#!/bin/sh\n{body}\n")
        (self.directory / name).chmod(0o755)

    async def create(self, os: str = "tiny", key: str = KEY, **osparams: str) -> tuple[str, str]:
        choice = OsChoice(os, osparams)
        done = await self.scripts.create(key, choice, SPEC, ["/tmp/disk"], 0)
        return done.tail, done.log_path


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.requirement("S134")
async def test_create_runs_in_its_directory_and_its_output_is_kept(node: Node) -> None:
    node.file("name.txt", "from a file beside\n")
    node.script(
        "create", 'cat name.txt >&2; echo output; echo "for $INSTANCE_NAME on $DISK_0_PATH" >&2'
    )
    tail, log_path = await node.create()
    assert tail == "from a file beside\nfor web1.example.com on /tmp/disk"
    assert Path(log_path).with_suffix(".out").read_text() == "output\n"
    assert log_path == str(node.root / "log/os/create-tiny-web1.example.com-12-0-3.log")
    assert read_tail(Path(log_path)) == tail
    assert node.tasks.keys == [KEY]


@pytest.mark.requirement("S127")
async def test_scripts_get_no_arguments_and_only_the_declared_variables(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAKED", "from the daemon")
    node.script("create", '{ echo "arguments: $#"; env; } >&2')
    tail, _ = await node.create()
    assert tail.startswith("arguments: 0\n")
    assert "INSTANCE_NAME=web1.example.com" in tail
    assert "LEAKED" not in tail


async def test_a_failing_create_is_an_error_with_its_last_words(node: Node) -> None:
    node.script("create", "echo no space >&2; exit 3")
    with pytest.raises(GuestOsError) as caught:
        await node.create()
    assert "script create for web1.example.com ended with exit status 3" in caught.value.message
    assert "create-tiny-web1.example.com-12-0-3.log" in caught.value.message
    assert caught.value.message.endswith("ends:\nno space")


@pytest.mark.parametrize(
    ("status", "words"),
    [(137, "signal 9"), (-9, "signal 9"), (124, "did not end in time"), (1, "exit status 1")],
)
async def test_every_kind_of_bad_end_is_reported(node: Node, status: int, words: str) -> None:
    class Ended(DirectTasks):
        async def run(self, key: str, argv: Sequence[str], **rest: object) -> int:
            return status

    node.scripts = OsScripts(node.scripts.search_path, node.root / "log", Ended(), run)
    with pytest.raises(GuestOsError, match=words):
        await node.create()


@pytest.mark.requirement("S122")
async def test_a_forced_variant_reaches_the_script_which_may_refuse_it(node: Node) -> None:
    node.file("variants.list", "small\n")
    node.script("create", 'test "$OS_VARIANT" = small || { echo "what is $OS_VARIANT?"; exit 1; }')
    await node.create("tiny+small")
    with pytest.raises(GuestOsError, match="does not declare variant 'huge'"):
        await node.create("tiny+huge")
    forced = OsChoice("tiny+huge", {}, force_variant=True)
    with pytest.raises(GuestOsError, match=r"what is huge\?"):
        await node.scripts.create("1/0/1", forced, SPEC, ["/tmp/disk"], 0)


@pytest.mark.requirement("S126")
def test_what_a_definition_has_no_script_for_is_refused(node: Node) -> None:
    end = DiskOfScript("/tmp/disk", 0, KEY)
    for name in ("export", "import"):
        make = getattr(node.scripts, f"{name}_command")
        with pytest.raises(GuestOsError, match=f"OS tiny has no script {name}"):
            make(OsChoice("tiny", {}), SPEC, ["/tmp/disk"], end)
        for one in ("export", "import"):
            node.script(one, "true")
        assert make(OsChoice("tiny", {}), SPEC, ["/tmp/disk"], end).argv[-1].endswith(f"/{name}")
        for one in ("export", "import"):
            (node.directory / one).unlink()


@pytest.mark.requirement("S138")
async def test_nothing_is_run_on_a_hypervisor_that_the_os_does_not_name(node: Node) -> None:
    node.file("hypervisors", "xen-pvm\n")
    with pytest.raises(GuestOsError, match="does not support kvm"):
        await node.create()
    assert node.tasks.keys == []


async def test_a_call_without_a_key_is_refused(node: Node) -> None:
    with pytest.raises(InputError, match="key"):
        await node.create(key="")


@pytest.mark.requirement("A40")
async def test_a_key_or_an_instance_name_never_leaves_the_log_directory(node: Node) -> None:
    _, log_path = await node.create(key="../../../etc/x")
    assert Path(log_path).parent == node.root / "log" / "os"
    evil = msgspec.structs.replace(SPEC, name="../x")
    with pytest.raises(InputError, match=r"instance\.name"):
        await node.scripts.create(KEY, OsChoice("tiny", {}), evil, ["/tmp/disk"], 0)


@pytest.mark.requirement("S146")
async def test_verify_is_called_with_the_word_parameters_and_decides(node: Node) -> None:
    node.script("verify", 'echo "$1 $#: ns1 is $OSP_NS1"; echo "and an error" >&2; exit 1')
    with pytest.raises(GuestOsError) as caught:
        await node.scripts.validate(OsChoice("tiny", {"ns1": "x"}))
    assert "refuses the parameters: script verify ended with exit status 1" in caught.value.message
    assert "parameters 1: ns1 is x\nand an error" in caught.value.message
    node.script("verify", 'test "$OSP_NS1" = x')
    await node.scripts.validate(OsChoice("tiny", {"ns1": "x"}))


@pytest.mark.requirement("S144")
@pytest.mark.requirement("S146", "S243")
async def test_what_verify_prints_about_accepted_parameters_is_returned(node: Node) -> None:
    node.script("verify", "echo 'release is old'; echo 'use a mirror' >&2")
    assert (
        await node.scripts.validate(OsChoice("tiny", {"ns1": "x"}))
        == "release is old\nuse a mirror"
    )


async def test_verify_sees_an_empty_value_as_no_value(node: Node) -> None:
    node.script("verify", 'echo "${OSP_NS1-unset}"')
    assert await node.scripts.validate(OsChoice("tiny", {"ns1": ""})) == "unset"
    assert await node.scripts.validate(OsChoice("tiny", {})) == "unset"


async def test_a_parameter_that_is_not_declared_is_refused_without_running_anything(
    node: Node,
) -> None:
    node.script("verify", "exit 1")
    with pytest.raises(GuestOsError, match=r"has no parameter ns9 \(it has ns1\)"):
        await node.scripts.validate(OsChoice("tiny", {"ns9": "x"}))


async def test_an_os_older_than_parameters_takes_none(node: Node) -> None:
    node.file("ganeti_api_version", "10\n")
    await node.scripts.validate(OsChoice("tiny", {}))
    with pytest.raises(GuestOsError, match="accepts no parameters: it supports API 10"):
        await node.scripts.validate(OsChoice("tiny", {"ns1": "x"}))


async def test_a_verify_that_cannot_be_started_is_an_error(node: Node) -> None:
    (node.directory / "verify").write_text("#!/no/such/interpreter\n")
    with pytest.raises(GuestOsError, match="verify"):
        await node.scripts.validate(OsChoice("tiny", {}))


async def test_a_verify_that_hangs_is_an_error(node: Node) -> None:
    async def hang(argv: Sequence[str], **rest: object) -> Completed:
        return await run(["sleep", "60"], timeout_s=0.01)

    node.scripts = OsScripts(node.scripts.search_path, node.root / "log", node.tasks, hang)
    with pytest.raises(GuestOsError, match="did not end within"):
        await node.scripts.validate(OsChoice("tiny", {}))


def test_the_tail_is_bounded_and_clean(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old" * TAIL_BYTES + b"\x1b[31mred\x07\r\n\tnew \xff\n")
    tail = read_tail(log)
    assert len(tail) <= TAIL_BYTES
    assert tail.endswith("[31mred\n\tnew \N{REPLACEMENT CHARACTER}")
    assert read_tail(tmp_path / "missing") == ""
    log.write_bytes(b"")
    assert read_tail(log) == ""


@pytest.mark.requirement("S147", "S149")
async def test_defaults_are_judged_for_all_variants_and_only_if_the_os_exists(node: Node) -> None:
    node.file("variants.list", "small\n")
    node.script("verify", 'test "$OSP_NS1:$OS_VARIANT" != x:')
    await node.scripts.validate_defaults(OsChoice("later", {"ns1": "x"}))
    await node.scripts.validate_defaults(OsChoice("tiny+small", {"ns1": "x"}))
    with pytest.raises(GuestOsError, match="OS tiny refuses the parameters"):
        await node.scripts.validate_defaults(OsChoice("tiny", {"ns1": "x"}))
    with pytest.raises(GuestOsError, match="does not declare variant 'huge'"):
        await node.scripts.validate_defaults(OsChoice("tiny+huge", {}))
    with pytest.raises(InputError, match="not an OS name"):
        await node.scripts.validate_defaults(OsChoice("../tiny", {}))
    node.file("ganeti_api_version", "5\n")
    with pytest.raises(GuestOsError, match="cannot be used"):
        await node.scripts.validate_defaults(OsChoice("tiny", {}))
