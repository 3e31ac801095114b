import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import InputError
from ganeti.query.pattern import Pattern, escaped, glob_pattern

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\W", r"\.", "-", "1"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        inner.map(lambda one: f"({one})*"),
        inner.map(lambda one: f"({one})+"),
        inner.map(lambda one: f"({one})?"),
        inner.map(lambda one: f"({one}){{1,3}}"),
        inner.map(lambda one: f"({one}){{2,}}"),
        inner.map(lambda one: f"^{one}"),
        inner.map(lambda one: f"{one}$"),
    ),
    max_leaves=6,
)
TEXTS = st.text(alphabet="abc1-.", max_size=8)


@settings(deadline=None)  # it is the usual engine that may take seconds
@given(PATTERNS, TEXTS)
def test_it_finds_what_the_usual_engine_finds(pattern: str, text: str) -> None:
    mine = Pattern(pattern)
    assert mine.search(text) == (re.search(pattern, text) is not None)
    assert mine.full_match(text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.requirement("A23")
@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*a){12}$"])
def test_a_pattern_that_explodes_elsewhere_takes_no_time_here(pattern: str) -> None:
    assert not Pattern(pattern).search("a" * 2000 + "!")


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^web[0-9]+\\.", "web12.example.com", True),
        ("^$", "", True),
        ("$", "x", True),
        ("a$", "ab", False),
        ("(?i)^WEB", "web1", True),
        ("a{3}", "aa", False),
        ("a{0}", "", True),
        ("[]x]", "]", True),
        ("[a-]", "-", True),
        ("a|", "zzz", True),
    ],
)
def test_corner_cases(pattern: str, text: str, found: bool) -> None:
    assert Pattern(pattern).search(text) is found


@pytest.mark.requirement("A23")
@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "*", "a**", "[a", "[b-a]", "\\", r"\1", "(?=a)", "(?P<x>a)", "a{", "a{x}",
        "a{3,2}", "(a{999}){999}", "x" * 1000, "(" * 100 + ")" * 100,
    ],
)  # fmt: skip
def test_what_it_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(InputError):
        Pattern(pattern)


@given(st.text(max_size=20))
def test_an_escaped_text_matches_itself(text: str) -> None:
    assert Pattern(escaped(text)).full_match(text)


@pytest.mark.parametrize(
    ("glob", "text", "found"),
    [
        ("web*", "web1.example.com", True),
        ("web?", "web1.example.com", True),
        ("web?", "web12.example.com", False),
        ("*.com", "web1.example.com", True),
        ("web", "web1.example.com", False),
        ("w[b", "w[b", True),
    ],
)
def test_globs_of_names_may_leave_out_the_last_labels(glob: str, text: str, found: bool) -> None:
    assert glob_pattern(glob, is_name=True).full_match(text) is found
