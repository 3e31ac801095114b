"""The rules of the house that a program can check; `docs/design/house.md` has the reasons."""

import ast
import re
import runpy
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from ganeti.model.cluster_params import CLUSTER_PARAMS
from ganeti.model.objects import Instance, Network, Nic, Node, NodeGroup

TOP = Path(__file__).resolve().parents[2]
SOURCE = TOP / "src" / "ganeti"

MOST_METHODS_OF_AN_INTERFACE = 12

# A module that cannot be named for one thing is two modules.
NAMES_THAT_NAME_NOTHING = {"utils", "util", "common", "helpers", "helper", "misc", "shared"}

# Commands start in a tenth of a second, so these are imported late.
HEAVY = {"aiohttp", "cryptography", "numpy", "qemu"}

REGISTRY_HOSTS = re.compile(r"\b(?:pypi|pythonhosted|crates|npmjs)[.][a-z]+\b|/simple[/]")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work/(?:main|shared)|root/[.]|home/[a-z]+/)")

MAKE_COMMANDS = [
    *("help", "setup", "check", "suite", "test", "test-host", "soak", "bench", "requirements"),
    *("demo", "demo-down", "clean"),
]

MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path), str(path))


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def _trees_are_forgotten() -> Iterator[None]:
    """They are a million objects, at which each later collection of garbage would look."""
    yield
    _tree.cache_clear()


def _modules_with(word: str) -> list[Path]:
    """To parse and walk through all of them takes seconds."""
    return [path for path in MODULES if word in _text(path)]


@cache
def _tracked_texts() -> dict[str, str]:
    """Name -> text of what git has, or would have after `git add`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.split("\0") if (TOP / name).is_file()]
    return {name: (TOP / name).read_text(encoding="utf-8", errors="replace") for name in names}


def _places(pattern: re.Pattern[str], texts: dict[str, str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:80]}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def _shown(path: Path) -> str:
    return str(path.relative_to(TOP))


def _interfaces(tree: ast.Module) -> list[ast.ClassDef]:
    """Classes made to be implemented: protocols and abstract bases."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {"Protocol", "abc.ABC", "ABC"}
    return [
        one for one in classes if bases & {ast.unparse(base).split("[")[0] for base in one.bases}
    ]


def _functions(node: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_there_are_modules_to_look_at() -> None:
    assert MODULES


def test_every_module_says_what_it_is_for() -> None:
    docstring = re.compile(r'(?:#.*\n|\n)*r?"""(?!\s*""")')
    assert [_shown(path) for path in MODULES if not docstring.match(_text(path))] == []


@pytest.mark.sampled(0)
def test_nearly_all_that_is_public_has_a_docstring() -> None:
    """A method that carries out a documented one of the same name inherits its docstring."""
    found = [one for path in MODULES for one in _public_definitions(_tree(path), in_class=False)]
    inherited = {name for name, is_method, has_docstring in found if is_method and has_docstring}
    lacking = [
        name
        for name, is_method, has_docstring in found
        if not has_docstring and not (is_method and name in inherited)
    ]
    assert len(lacking) <= 0.05 * len(found), sorted(lacking)


def _public_definitions(parent: ast.AST, *, in_class: bool) -> Iterator[tuple[str, bool, bool]]:
    """Each public class and function: its name, whether it is a method, whether it has a docstring."""
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_"):
            continue
        is_class = isinstance(node, ast.ClassDef)
        yield node.name, in_class and not is_class, ast.get_docstring(node) is not None
        if is_class:
            yield from _public_definitions(node, in_class=True)


def test_every_package_is_one() -> None:
    folders = {path.parent for path in MODULES}
    assert [_shown(one) for one in folders if not (one / "__init__.py").exists()] == []


def test_no_interface_has_too_many_methods() -> None:
    big = [
        f"{_shown(path)}: {interface.name}"
        for path in (*_modules_with("Protocol"), *_modules_with("ABC"))
        for interface in _interfaces(_tree(path))
        if len(_methods(interface)) > MOST_METHODS_OF_AN_INTERFACE
    ]
    assert big == []


def _methods(interface: ast.ClassDef) -> list[str]:
    """What an implementation must have; properties are facts, and a constructor is how it is made."""
    is_protocol = any(ast.unparse(base).startswith("Protocol") for base in interface.bases)
    return [
        one.name
        for one in interface.body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        and one.name != "__init__"
        and "property" not in (marks := {ast.unparse(each) for each in one.decorator_list})
        and (is_protocol or marks & {"abc.abstractmethod", "abstractmethod"})
    ]


def test_every_module_is_named_for_one_thing() -> None:
    nameless = [path for path in MODULES if path.stem in NAMES_THAT_NAME_NOTHING]
    assert [_shown(path) for path in nameless] == []


def test_commands_import_heavy_libraries_late() -> None:
    early = [
        f"{_shown(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in MODULES
        if path.is_relative_to(SOURCE / "cli")
        for node in _tree(path).body
        if HEAVY & {name.split(".")[0] for name in _imported(node)}
    ]
    assert early == []


def test_aiohttp_is_imported_in_two_places() -> None:
    """There it does not load the certificates of the system's authorities."""
    imports = re.compile(r"^\s*(?:import|from) aiohttp", re.MULTILINE)
    importing = [_shown(path) for path in MODULES if imports.search(_text(path))]
    assert sorted(importing) == ["src/ganeti/base/http.py", "src/ganeti/base/http_web.py"]


def _imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return []


WRITES_PAST_THE_TERMINAL = {
    "bootstrap/merge/on_node.py": "the answer of a node is JSON for a program",
    "cli/gnt_instance/console.py": "a picture, a guest's log to a file, a guest's own terminal",
    "cli/hail.py": "the answer of an allocator is JSON for a program",
    "daemons/allocation_worker.py": "messages for the daemon that started it",
    "whatif/requested.py": "lines of JSON for the REST server that started it",
    "base/start.py": "a version, before the way that escapes could be imported",
    "base/terminal.py": "it is the way",
}
"""What may write to standard output or error without `say` (`print` is ruff's matter), and why."""
_STANDARD_STREAM = re.compile(
    r"\bsys[.](?:__)?std(?:out|err)(?:__)?[.](?:write|buffer)|\bos[.]write\([12],"
)


def test_untrusted_text_reaches_a_terminal_only_by_the_way_that_escapes_it() -> None:
    writing = {
        str(path.relative_to(SOURCE)) for path in MODULES if _STANDARD_STREAM.search(_text(path))
    }
    assert writing - WRITES_PAST_THE_TERMINAL.keys() == set()
    ignored = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    quiet = [name for name, rules in ignored["per-file-ignores"].items() if "T201" in rules]
    assert [name for name in quiet if name.startswith("src/")] == []


CLUSTER_PARAMS_ELSEWHERE = {
    "cli/init_questions.py": "the questions before a cluster exists",
    "bootstrap/init.py": "where there are user ids for guests, guests have them; whose they are already",
    "bootstrap/takeover.py": "whose the user ids are already",
    "bootstrap/join.py": "facts that a node reads from ssconf",
    "bootstrap/membership.py": "facts that a joining node gets from ssconf",
    "cli/gnt_cluster.py": "hypervisor parameters are shown of enabled ones; collectors with their intervals",
    "cli/gnt_instance/batch.py": "asks whether there is an allocator",
    "cli/gnt_os.py": "shows and changes what the cluster has for one OS",
    "confd/facts.py": "rows are read by the few fields that are answered",
    "config/cluster_params.py": "rules between two parameters",
    "config/merging/parameters.py": "those that are compared by what they give to single objects",
    "config/os_summary.py": "fields of OS definitions",
    "layouts/files.py": "an instance's own directory",
    "model/disk_templates.py": "which parameter says where a template takes space from",
    "model/iallocator.py": "where a default allocator is refused",
    "model/opcodes/instance.py": "an instance's own directory",
    "model/opcodes/instance_changes.py": "an instance's own directory",
    "model/uid_ranges.py": "where a range is refused",
    "query/fields/os.py": "fields of OS definitions",
    "rpc/procedures/uids.py": "a message about the pool",
    "simulation/cluster.py": "which volume group simulated nodes have",
    "simulation/example.py": "a whole configuration",
    "ssconf.py": "readers of the ssconf files",
    "tools/sanitizing.py": "fields of the original's configuration",
    "units/allocator_message.py": "a key of the allocator protocol",
    "monitoring/disks.py": "columns of LVM",
    "storage/lvm/commands.py": "columns of LVM",
    "storage/lvm/reports.py": "columns of LVM",
    "units/cluster/modify.py": "what existing instances need",
    "units/cluster/uid_pool.py": "what nodes say of the pool",
    "units/relocation/convert.py": "an instance's own directory",
    "units/instance/create_plan.py": "an instance's own directory",
    "units/os/diagnose.py": "a column of OP_OS_DIAGNOSE",
    "upstream/clusters.py": "fields of the original's configuration",
    "upstream/shapes.py": "what kind of value the original gives them",
    "upstream/forms.py": "fields of the original's configuration",
    "clients/fields.py": "second names that REST clients know",
    "model/opcodes/cluster.py": "which one the REST interface never sets",
    "web/submission.py": "what remote users may set of the host",
    "whatif/from_stored.py": "a field of the original's configuration",
    "whatif/from_text.py": "a whole configuration",
    "whatif/simulate.py": "asks whether there is an allocator",
}
"""Who else writes the name of a parameter that only the cluster has, and why."""


def _names_written(tree: ast.Module) -> set[str]:
    """Texts, keyword arguments and annotated names."""
    found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    found |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    annotated = [node.target for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)]
    found |= {target.id for target in annotated if isinstance(target, ast.Name)}
    return {name for name in found if isinstance(name, str)}


def test_a_parameter_of_the_cluster_is_declared_once() -> None:
    others = {
        name
        for kind in (Node, NodeGroup, Network, Instance, Nic)
        for name in kind.__struct_fields__
    }
    own = CLUSTER_PARAMS.keys() - others
    known = {SOURCE / one for one in ("model/cluster_params.py", *CLUSTER_PARAMS_ELSEWHERE)}
    may_write = re.compile(rf"\b(?:{'|'.join(own)})\b")
    judged = [path for path in MODULES if path not in known and may_write.search(_text(path))]
    assert own
    assert [_shown(path) for path in judged if own & _names_written(_tree(path))] == []


def test_no_file_names_a_registry_host() -> None:
    assert _places(REGISTRY_HOSTS, _tracked_texts()) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert _places(MACHINE_PATHS, _tracked_texts()) == []


def test_nothing_is_left_unfinished() -> None:
    marks = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
    python = {name: text for name, text in _tracked_texts().items() if name.endswith(".py")}
    assert _places(marks, python) == []


def test_every_silenced_type_error_has_its_reason() -> None:
    # What follows the brackets is the reason.
    bare = re.compile(r"#\s*type:\s*ignore(?:\[[^\]]*\])?\s*$")
    python = {name: text for name, text in _tracked_texts().items() if name.endswith(".py")}
    assert _places(bare, python) == []


@pytest.mark.parametrize("name", ["run", "dev", "ansible"])
def test_every_pin_has_a_version_and_hashes(name: str) -> None:
    text = (TOP / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    entries = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE).replace("\\\n", " ").split("\n")
    wrong = [one for one in entries if one and not re.match(r"[\w.-]+==\S+ .*--hash=sha256:", one)]
    assert wrong == []


def test_what_runs_is_pinned_to_the_same_versions_as_what_is_tested() -> None:
    def pins(name: str) -> set[str]:
        text = (TOP / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        return set(re.findall(r"^[\w.-]+==[^\s;]+", text, flags=re.MULTILINE))

    assert pins("run") <= pins("dev")


NAMES_KVM = {
    "base/node_files.py": "where its logs are",
    "base/paths.py": "where its runtime files are",
    "model/cluster_params.py": "the hypervisor of a new cluster",
    "model/objects.py": "what a stored instance without a hypervisor has",
    "vcluster/demo.py": "the demonstration runs real guests",
}
"""Who names the hypervisor kvm besides its own files, and why; all others read its row or its driver's abilities."""


def test_hypervisor_is_named_only_in_its_own_files() -> None:
    own = (SOURCE / "hypervisor" / "kvm", SOURCE / "model" / "hypervisors")
    naming = {
        str(path.relative_to(SOURCE))
        for path in _modules_with('"kvm"')
        if not any(path.is_relative_to(directory) for directory in own)
    }
    assert naming == NAMES_KVM.keys()


_IMPORTS = re.compile(r"^\s*from (ganeti[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_modules_import_each_other_in_a_circle_not_even_late_or_for_types() -> None:
    names = {_module_name(path) for path in MODULES}

    def imported(text: str) -> Iterator[str]:
        for module, given in _IMPORTS.findall(text):  # to parse all of them takes ten seconds
            full = [f"{module}.{one}" for one in re.findall(r"\w+", given)]
            yield from (one if one in names else module for one in full)

    graph = {
        name: {one for one in imported(_text(path)) if one in names and one != name}
        for path in MODULES
        if (name := _module_name(path))
    }
    circle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as err:
        circle = err.args[1]
    assert circle == []


MODULES_OF_REQUIREMENTS = {"pyyaml": "yaml"}


def test_every_requirement_of_the_product_is_imported() -> None:
    lines = (TOP / "requirements" / "run.in").read_text(encoding="utf-8").splitlines()
    wanted = {line.partition(".")[0] for line in lines if line and not line.startswith("#")}
    wanted = {MODULES_OF_REQUIREMENTS.get(name, name) for name in wanted}
    imported = {
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r"^\s*(?:import|from) (\w+)", _text(path), re.MULTILINE)
    }
    assert wanted - imported == set()


@pytest.mark.parametrize("command", MAKE_COMMANDS)
def test_make_has_the_command_and_its_help(command: str) -> None:
    makefile = (TOP / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{command}:.*## \S", makefile, flags=re.MULTILINE)


def test_every_program_named_in_pyproject_is_there() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    missing = []
    for program, entry in project["scripts"].items():
        module, function = entry.split(":")
        folder = TOP / "src" / Path(*module.split("."))
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        names = {one.name for one in _functions(_tree(path))} if path.exists() else set()
        if function not in names | _names_imported_by(path):
            missing.append(program)
    assert missing == []


def _names_imported_by(path: Path) -> set[str]:
    if not path.exists():
        return set()
    imports = [node for node in _tree(path).body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def test_every_package_has_a_page_in_the_design_notes() -> None:
    notes = TOP / "docs" / "design"
    rows = re.findall(
        r"^\| `(\w+)` \| \[.*?\]\((\w+\.md)\)", (notes / "README.md").read_text(), re.MULTILINE
    )
    pages = {package: notes / page for package, page in rows}
    packages = [one.name for one in sorted(SOURCE.iterdir()) if (one / "__init__.py").exists()]
    assert [name for name in packages if name not in pages or not pages[name].exists()] == []


def test_index_of_the_design_notes_names_every_page() -> None:
    notes = TOP / "docs" / "design"
    named = set(re.findall(r"\((\w+\.md)\)", (notes / "README.md").read_text()))
    assert {page.name for page in notes.glob("*.md")} - named == {"README.md"}


def test_picture_of_the_layers_is_that_of_the_contract() -> None:
    page = (TOP / "docs" / "design" / "house.md").read_text()
    picture = page.split("## Layers")[1].split("```")[1]
    drawn = [set(re.findall(r"\w+", re.split(r" {4,}", line)[0])) for line in picture.splitlines()]
    contracts = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(one["layers"] for one in contracts if one["id"] == "layers")
    assert [row for row in drawn if row] == [set(layer.split(" | ")) for layer in layers]


def test_picture_of_the_packages_shows_the_imports_of_now() -> None:
    draw = runpy.run_path(str(TOP / "scripts" / "draw_packages.py"))
    now = draw["picture"](draw["layers"](), draw["edges"]())
    drawn = (TOP / "docs" / "design" / "packages.svg").read_text()
    assert drawn == now, "run: make generated"


def test_table_of_base_names_no_module_that_is_gone() -> None:
    page = (TOP / "docs" / "design" / "base.md").read_text()
    cells = re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named - {path.stem for path in (SOURCE / "base").glob("*.py")} == set()


# A handler of Python's signal module runs between any two steps of the main thread, which may hold any lock.
SIGNAL_SAFE_CALLS = {
    "asyncio.current_task", "os.write", "len", "_Block", "time.monotonic", "signal.setitimer",
}  # fmt: skip
SIGNAL_SAFE_NODES = (
    *(ast.arguments, ast.arg, ast.If, ast.While, ast.Try, ast.ExceptHandler, ast.Return, ast.Raise),
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Attribute, ast.Name, ast.Constant, ast.Tuple),
    *(ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Call, ast.Expr, ast.Subscript),
    *(ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop),
)
SIGNAL_DEFAULTS = {"signal.SIG_DFL", "signal.SIG_IGN"}


def _called(tree: ast.AST, name: str) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if ast.unparse(call.func).split(".")[-1] == name]


def _signal_handlers(tree: ast.Module) -> dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    """What is given to `signal.signal`, and the functions of the module that are meant."""
    given = [
        ast.unparse(call.args[1])
        for call in _called(tree, "signal")
        if ast.unparse(call.func) in ("signal.signal", "signal")
    ]
    functions = _functions(tree)
    return {
        name: [one for one in functions if one.name == name.split(".")[-1]]
        for name in given
        if name not in SIGNAL_DEFAULTS and not _gives_back(tree, name)
    }


def _gives_back(tree: ast.Module, name: str) -> bool:
    """Whether `name` is what `signal.signal` said was the handler before."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    before = [one for one in assigned if _called(one.value, "signal")]
    kept = {ast.unparse(target) for one in before for target in one.targets}
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.For)):
        if ast.unparse(loop.iter).removesuffix(".items()") in kept:
            kept |= {ast.unparse(node) for node in ast.walk(loop.target)}
    return name in kept


def _unsafe(handler: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """What a handler does that may wait for a lock which the interrupted code holds."""
    inside = [node for statement in handler.body for node in ast.walk(statement)]
    docstring = handler.body[0] if ast.get_docstring(handler) else None
    strange = [
        ast.unparse(node)
        for node in inside
        if node is not docstring and not isinstance(node, SIGNAL_SAFE_NODES)
    ]
    calls = [ast.unparse(node.func) for node in inside if isinstance(node, ast.Call)]
    return strange + [call for call in calls if call not in SIGNAL_SAFE_CALLS | {"SystemExit"}]


def test_signal_handlers_only_take_notes() -> None:
    judged = 0
    for module in _modules_with("signal"):
        for name, functions in _signal_handlers(_tree(module)).items():
            assert len(functions) == 1, (
                f"{_shown(module)}: give signal.signal a function, not {name}"
            )
            assert not _unsafe(functions[0]), f"{_shown(module)}: {name}: {_unsafe(functions[0])}"
            judged += 1
    assert judged >= 3


def test_signals_of_the_loop_are_handled_by_plain_callbacks() -> None:
    """The loop calls them between two callbacks, so they may do what any callback may; none is a coroutine."""
    judged = 0
    for module in _modules_with("add_signal_handler"):
        coroutines = {
            one.name for one in _functions(_tree(module)) if isinstance(one, ast.AsyncFunctionDef)
        }
        for call in _called(_tree(module), "add_signal_handler"):
            assert ast.unparse(call.args[1]).split(".")[-1] not in coroutines, _shown(module)
            judged += 1
    assert judged >= 1


@pytest.mark.parametrize(
    "does",
    ["logging.warning('x')", "print('x')", "self._lock.acquire()", "open('/x')", "self.cancel()"],
)
def test_the_judge_of_signal_handlers_finds_what_takes_locks(does: str) -> None:
    tree = ast.parse(f"def fired(number, frame):\n    self.seen = True\n    {does}\n")
    assert _unsafe(_functions(tree)[0])
