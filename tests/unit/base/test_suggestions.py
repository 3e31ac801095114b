import difflib
from typing import Any

import pytest

from ganeti.base.suggestions import MOST, did_you_mean

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
    compared = list[int]()
    real = difflib.get_close_matches

    def counted(word: str, known: list[str], **rest: Any) -> list[str]:
        compared.append(len(known))
        return real(word, known, **rest)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    known = [f"web{number}" for number in range(20_000)]
    assert did_you_mean(typed, known) in {
        "; did you mean web1234?",
        "; did you mean web12334?",
        "; did you mean web12345?",
    }
    assert compared == [MOST]
