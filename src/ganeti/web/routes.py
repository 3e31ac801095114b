"""The tree of paths: finds the operation of a path, part by part and without any decoding (A13)."""

import re
from collections.abc import Iterable
from http import HTTPStatus

from ganeti.web.operations import Operation
from ganeti.web.refusals import Refusal, not_found

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_FORMS = {
    "job": re.compile(r"[0-9]{1,18}"),
    "disk": re.compile(r"[0-9]{1,4}"),
    "upload": re.compile(r"[0-9a-f]{32}"),
}
"""Patterns of variable parts of a path by kind; other kinds are names."""


class _PathNode:
    """A node in the tree of paths."""

    def __init__(self) -> None:
        self.words: dict[str, _PathNode] = {}
        self.item: _PathNode | None = None
        self.form = _NAME
        self.operations: dict[str, Operation] = {}


class Routes:
    """All operations by path and method."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._top = _PathNode()
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        node = self._top
        for word in _words(operation.path):
            if word.startswith("{"):
                node.item = node.item or _PathNode()
                node.form = _FORMS.get(word[1:-1], _NAME)
                node = node.item
            else:
                node = node.words.setdefault(word, _PathNode())
        if operation.method in node.operations:
            raise ValueError(f"{operation.method} {operation.path} is declared twice")
        node.operations[operation.method] = operation

    def find(self, method: str, path: str) -> tuple[Operation, tuple[str, ...]]:
        """Return the operation and the variable parts of the path; Refusal (404, 405)."""
        node, items = self._top, list[str]()
        for word in _words(path):
            if found := node.words.get(word):
                node = found
            elif node.item is not None and node.form.fullmatch(word):
                node = node.item
                items.append(word)
            else:
                raise not_found("Nothing matches the given URI")
        if not node.operations:
            raise not_found("Nothing matches the given URI")
        if operation := node.operations.get(method):
            return operation, tuple(items)
        allowed = ", ".join(node.operations)
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"use one of {allowed}", {"Allow": allowed})


def _words(path: str) -> list[str]:
    return path[1:].split("/") if path != "/" else []
