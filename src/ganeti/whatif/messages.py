"""The messages of strict parsing (msgspec) in the words of a scenario's author."""

import re

Path = tuple[str | int, ...]
"""Fields and indexes from the outermost value to the wrong one."""
_PATH = re.compile(r" - at `\$(.*)`$")
_EXPECTED = re.compile(r"Expected `(.*?)`, got")
_TYPES = {"int": "a whole number", "float": "a number", "bool": "yes or no", "array": "a list",
          "object": "names with values", "str": "a text"}  # fmt: skip


def explained(message: str) -> tuple[Path, str]:
    """Return the path to the wrong value, and the message without it."""
    found = _PATH.search(message)
    text = _PATH.sub("", message)
    if expected := _EXPECTED.match(text):
        words = [_TYPES[one] for one in re.findall(r"\w+", expected[1]) if one in _TYPES]
        text = f"must be {' or '.join(words)}"
    return (_path(found[1]) if found else ()), text


def _path(text: str) -> Path:
    """Parse msgspec's `.steps[2].create`."""
    words = re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", text)
    return tuple(int(index) if index else word for word, index in words)
