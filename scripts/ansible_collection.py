"""Put the Ansible collection together in a directory: its own files, and the Python client. `make ansible` runs it.

    scripts/ansible_collection.py DIRECTORY

Ansible finds modules of a collection only by its own name, so the imports of the client get that name.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

INTEGRATIONS = Path(__file__).resolve().parents[1] / "integrations"
CLIENT = INTEGRATIONS / "python" / "ganeti_rest"
WITHIN = "plugins/module_utils"
NAME = f"ansible_collections.ganeti.cluster.{WITHIN.replace('/', '.')}.{CLIENT.name}"


def assemble(target: Path) -> None:
    """Write the whole collection into a new directory."""
    shutil.copytree(INTEGRATIONS / "ansible", target, ignore=shutil.ignore_patterns("__pycache__"))
    package = target / WITHIN / CLIENT.name
    package.mkdir()
    for path in CLIENT.glob("*.py"):
        text = path.read_text("utf-8").replace(f"from {CLIENT.name}", f"from {NAME}")
        (package / path.name).write_text(text, "utf-8")


def main(argv: Sequence[str]) -> int:
    """Replace the directory."""
    target = Path(argv[0])
    shutil.rmtree(target, ignore_errors=True)
    assemble(target)
    print(f"Install it: ansible-galaxy collection install {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
