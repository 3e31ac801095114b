"""All daemons run on the same main loop: that of asyncio, begun in one way."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
OWN_PROGRAMS = {
    "ganeti.node.backups.drill", "ganeti.node.backups.live_relay", "ganeti.node.carrier.callers", "ganeti.node.carrier.connection", "ganeti.node.carrier.ends",
}  # fmt: skip
"""Modules of programs that tasks run as processes of their own; a daemon takes only names from them."""
OTHER_LOOPS = {
    "anyio", "asyncore", "curio", "eventlet", "gevent", "pyinotify", "select", "selectors",
    "socketserver", "tornado", "trio", "twisted", "uvloop",
}  # fmt: skip
OTHER_STARTS = {
    "new_event_loop", "set_event_loop", "set_event_loop_policy", "run_until_complete",
    "run_forever", "loop_factory",
}  # fmt: skip
SUSPICIOUS = re.compile(rf"\b(?:{'|'.join(OTHER_LOOPS | OTHER_STARTS)})\b")


def daemons() -> dict[str, str]:
    """The modules of all programs that are called as a daemon, `ganeti-*d`."""
    scripts = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
    return {
        name: target.partition(":")[0]
        for name, target in scripts.items()
        if name.startswith("ganeti-") and name.endswith("d")
    }


def imports_of(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def names_of(tree: ast.AST) -> set[str]:
    """Attributes, plain names and keyword arguments that are used."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.keyword):
            found.add(node.arg or "")
    return found


def starts_the_loop(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) == "asyncio.run"
        for node in ast.walk(tree)
    )


def text_of(module: str) -> str:
    path = import_module(module).__file__
    assert path is not None
    return Path(path).read_text()


def tree_of(module: str) -> ast.Module:
    return ast.parse(text_of(module))


@pytest.mark.requirement("S191")
def test_each_daemon_is_started_by_asyncio_run() -> None:
    found = daemons()
    assert {"ganeti-masterd", "ganeti-noded"} <= found.keys()
    for name, module in found.items():
        if name == "ganeti-guard":
            continue  # it has one thing to do, and does it without asyncio
        tree = tree_of(module)
        shared = [one for one in imports_of(tree) if one.startswith("ganeti.")]
        starters = [tree, *map(tree_of, shared)]
        assert sum(map(starts_the_loop, starters)) == 1, name


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """All modules that the daemons' programs load."""
    program = f"import sys, {', '.join(daemons().values())}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.requirement("S191")
def test_no_module_of_a_daemon_makes_a_loop_of_its_own(loaded: set[str]) -> None:
    ours = {name for name in loaded if name.startswith("ganeti.")}
    assert len(ours) > 50
    for name in ours:
        if name in OWN_PROGRAMS or not SUSPICIOUS.search(text_of(name)):
            continue  # parsing all takes seconds
        tree = tree_of(name)
        others = {one.partition(".")[0] for one in imports_of(tree)} & OTHER_LOOPS
        assert not others, name
        assert not names_of(tree) & OTHER_STARTS, name


@pytest.mark.requirement("S191")
def test_what_the_daemons_import_brings_no_other_loop(loaded: set[str]) -> None:
    standard = {"select", "selectors"}  # asyncio itself needs them
    assert not {name.partition(".")[0] for name in loaded} & (OTHER_LOOPS - standard)
