"""Suggestions in errors: what a mistyped word most likely stands for."""

from collections.abc import Iterable

LIKENESS = 0.6
"""The least similarity of two words, from 0 to 1; difflib's measure."""
LONGEST = 100
"""Characters; longer words are not typing errors, and take long to compare."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean NAME?` for the known word that is most like this one; empty without one."""
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    if len(word) > LONGEST:
        return ""
    lower = {one.lower(): one for one in known}
    matches = get_close_matches(word.lower(), lower, n=1, cutoff=LIKENESS)
    return f"; did you mean {lower[matches[0]]}?" if matches else ""
