"""Names as the placement commands print them: without the domain that all names of a cluster share."""

from collections.abc import Iterable


def common_suffix(names: Iterable[str]) -> str:
    """Return the longest common suffix of all names that begins with a dot and leaves part of each; else ''."""
    every = list(names)
    if not every:
        return ""
    first = every[0]
    for start, character in enumerate(first):
        suffix = first[start:]
        if start and character == "." and all(_ends(name, suffix) for name in every):
            return suffix
    return ""


def _ends(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and len(name) > len(suffix)
