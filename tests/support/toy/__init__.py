"""The files of a new disk template, a new hypervisor and a new operation, beside those of the program.

`discovered` puts these directories into the packages of the program: what finds the files there would find them
in the program's own directories, too.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def discovered(*packages: str) -> Iterator[None]:
    """Let `ganeti.PACKAGE` have the files of the directory PACKAGE here, too; dots lead into directories."""
    found = [importlib.import_module(f"ganeti.{package}") for package in packages]
    before = [list(one.__path__) for one in found]
    for package, one in zip(packages, found, strict=True):
        one.__path__.append(str(Path(__file__).parent.joinpath(*package.split("."))))
    try:
        yield
    finally:
        for package, one, path in zip(packages, found, before, strict=True):
            one.__path__[:] = path
            sys.modules.pop(f"ganeti.{package}.toy", None)
