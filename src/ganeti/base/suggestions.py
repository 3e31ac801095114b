"""Suggestions in errors: what a mistyped word most likely stands for."""

from collections.abc import Iterable, Sequence

LIKENESS = 0.6
"""The least similarity of two words, from 0 to 1; difflib's measure."""
LONGEST = 100
"""Characters; longer words are not typing errors, and take long to compare."""
MOST = 100
"""So many known words are compared in full: with 20,000 instances a wrong name took a second."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean NAME?` for the known word that is most like this one; empty without one."""
    if len(word) > LONGEST:
        return ""
    lower = {one.lower(): one for one in known}
    match = _most_like(word.lower(), _likely(word.lower(), lower))
    return f"; did you mean {lower[match]}?" if match is not None else ""


def _most_like(word: str, known: Iterable[str]) -> str | None:
    """Return what `difflib.get_close_matches` returns first; it compares all words in full, and each twice."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - only errors need it

    matcher = SequenceMatcher(b=word)
    numbers = [(character, word.count(character)) for character in set(word)]
    best: tuple[float, str] | None = None
    for one in known:
        least = LIKENESS if best is None else best[0]
        # As `SequenceMatcher.quick_ratio`, which counts in Python: equal characters at any place.
        equal = sum([min(number, one.count(character)) for character, number in numbers])
        length = len(one) + len(word)
        if not length or 2.0 * equal / length >= least:
            matcher.set_seq1(one)
            ratio = matcher.ratio()
            if ratio >= least and (best is None or (ratio, one) > best):
                best = ratio, one
    return None if best is None else best[1]


def _likely(word: str, known: Iterable[str]) -> Iterable[str]:
    """Return all words if they are few, otherwise those with the most equal characters at the same places."""
    words = list(known)
    if len(words) <= MOST:
        return words
    width = min(max(map(len, words)), LONGEST)
    forwards = _equal(
        word[:width].ljust(width, "\1"), [one[:width].ljust(width, "\0") for one in words]
    )
    # A typing error moves what follows it, so the places count from the end, too.
    backwards = _equal(
        word[-width:].rjust(width, "\1"), [one[-width:].rjust(width, "\0") for one in words]
    )
    alike = list(map(max, forwards, backwards))
    order = sorted(range(len(words)), key=alike.__getitem__, reverse=True)
    return [words[number] for number in order[:MOST]]


def _equal(word: str, rows: Sequence[str]) -> list[int]:
    """Return how many characters of each row are those of the word; all have the same length.

    The rows are compared as one number: a loop in Python over their characters would take three times as long.
    """
    width, text = len(word), "".join(rows).encode("latin-1", "replace")
    pattern = word.encode("latin-1", "replace") * len(rows)
    differing = int.from_bytes(text, "big") ^ int.from_bytes(pattern, "big")
    found = differing.to_bytes(len(text), "big")
    return [found[start : start + width].count(0) for start in range(0, len(found), width)]
