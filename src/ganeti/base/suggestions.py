"""Suggestions in errors: what a mistyped word most likely stands for."""

import operator
from collections.abc import Iterable

LIKENESS = 0.6
"""The least similarity of two words, from 0 to 1; difflib's measure."""
LONGEST = 100
"""Characters; longer words are not typing errors, and take long to compare."""
MOST = 300
"""So many known words are compared, in about 20 ms: with 20,000 instances a wrong name took a second."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean NAME?` for the known word that is most like this one; empty without one."""
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    if len(word) > LONGEST:
        return ""
    wanted, lower = word.lower(), {one.lower(): one for one in known}
    matches = get_close_matches(wanted, _likely(wanted, lower), n=1, cutoff=LIKENESS)
    return f"; did you mean {lower[matches[0]]}?" if matches else ""


def _likely(word: str, known: Iterable[str]) -> Iterable[str]:
    """Return all words if they are few, otherwise those with the most equal characters at the same places."""
    words = list(known)
    if len(words) <= MOST:
        return words
    backwards = word[::-1]

    def alike(one: str) -> int:
        """A typing error moves what follows it, so the places count from the end, too."""
        forwards = list(map(operator.eq, one, word)).count(True)
        return max(forwards, list(map(operator.eq, one[::-1], backwards)).count(True))

    words.sort(key=alike, reverse=True)
    return words[:MOST]
