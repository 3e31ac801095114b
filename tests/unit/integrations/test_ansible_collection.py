"""The Ansible collection as it is put together: the client is in it, by the names that Ansible knows."""

import ast
import runpy
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
SCRIPT = runpy.run_path(str(TOP / "scripts" / "ansible_collection.py"))


def test_collection_has_the_whole_client_and_imports_nothing_outside_of_itself(
    tmp_path: Path,
) -> None:
    target = tmp_path / "cluster"
    SCRIPT["assemble"](target)
    package = target / "plugins" / "module_utils" / "ganeti_rest"
    client = TOP / "integrations" / "python" / "ganeti_rest"
    assert {one.name for one in package.iterdir()} == {one.name for one in client.glob("*.py")}
    names = {
        str(one.module).split(".")[0]
        for path in target.rglob("*.py")
        for one in ast.walk(ast.parse(path.read_text()))
        if isinstance(one, ast.ImportFrom)
    }
    assert "ansible_collections" in names
    assert "ganeti_rest" not in names
