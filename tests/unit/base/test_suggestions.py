import pytest

from ganeti.base.suggestions import did_you_mean

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
