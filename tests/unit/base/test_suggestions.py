import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base import suggestions
from ganeti.base.suggestions import LIKENESS, MOST, did_you_mean

KNOWN = ("migrate", "modify", "remove")


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("migrte", "; did you mean migrate?"),
        ("MODIFI", "; did you mean modify?"),
        ("list", ""),
        ("", ""),
        ("migrate" * 20, ""),
    ],
)
def test_suggestion_is_the_most_similar_known_word(word: str, suggestion: str) -> None:
    assert did_you_mean(word, KNOWN) == suggestion


@pytest.mark.parametrize("typed", ["web1234x", "we1234", "web12334", "wbe1234", "web1234"])
def test_suggestion_is_found_among_many_and_few_words_are_compared(
    monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    compared = list[str]()
    real = difflib.SequenceMatcher.set_seq1

    def counted(matcher: difflib.SequenceMatcher[str], one: str) -> None:
        compared.append(one)
        real(matcher, one)

    monkeypatch.setattr(difflib.SequenceMatcher, "set_seq1", counted)
    known = [f"web{number}" for number in range(20_000)]
    assert did_you_mean(typed, known) in {
        "; did you mean web1234?",
        "; did you mean web12334?",
        "; did you mean web12345?",
    }
    assert len(compared) <= MOST + 1  # one is the empty word with which a matcher begins


@given(
    st.text("abé☃", min_size=1, max_size=6),
    st.lists(st.text("abé☃", max_size=6), min_size=3, max_size=9, unique=True),
)
def test_words_with_the_most_equal_characters_are_compared(word: str, known: list[str]) -> None:
    def equal(one: str) -> int:
        """In latin-1, where all other characters are one."""
        pairs = zip(one.replace("☃", "?"), word.replace("☃", "?"), strict=False)
        return sum(a == b for a, b in pairs)

    def equal_from_the_end(one: str) -> int:
        pairs = zip(one[::-1].replace("☃", "?"), word[::-1].replace("☃", "?"), strict=False)
        return sum(a == b for a, b in pairs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suggestions, "MOST", 2)
        found = list(suggestions._likely(word, known))
    alike = sorted((max(equal(one), equal_from_the_end(one)) for one in known), reverse=True)
    assert [max(equal(one), equal_from_the_end(one)) for one in found] == alike[:2]


@given(st.text("abc1-.", max_size=8), st.lists(st.text("abc1-.", max_size=8), max_size=6))
def test_suggestion_is_that_of_difflib(typed: str, known: list[str]) -> None:
    best = difflib.get_close_matches(typed, known, n=1, cutoff=LIKENESS)
    assert did_you_mean(typed, known) == (f"; did you mean {best[0]}?" if best else "")
