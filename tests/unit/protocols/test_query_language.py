from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import InputError
from ganeti.protocols.query_language import both, names_filter, parse_filter


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("offline", ["?", "offline"]),
        ("not offline", ["!", ["?", "offline"]]),
        ('status == "running"', ["=", "status", "running"]),
        ("status = running", ["=", "status", "running"]),
        ("be/memory >= 512", [">=", "be/memory", 512]),
        ("ctime<1.5", ["<", "ctime", 1.5]),
        ("role != 'M'", ["!=", "role", "M"]),
        ("name =~ m/^web[0-9]/i", ["=~", "name", "(?i)^web[0-9]"]),
        ('name =~ "^web"', ["=~", "name", "^web"]),
        ("name !~ m/x/", ["!", ["=~", "name", "x"]]),
        ("name =* web*", ["=*", "name", "web*"]),
        ('"x" in tags', ["=[]", "tags", "x"]),
        ('"x" not in tags', ["!", ["=[]", "tags", "x"]]),
        ("a and b or c", ["|", ["&", ["?", "a"], ["?", "b"]], ["?", "c"]]),
        ("a and (b or c)", ["&", ["?", "a"], ["|", ["?", "b"], ["?", "c"]]]),
        ("admin_up == true", ["=", "admin_up", True]),
        (r'name == "a\"b"', ["=", "name", 'a"b']),
    ],
)
def test_the_language_means_list_filters(text: str, meaning: list[Any]) -> None:
    assert parse_filter(text) == meaning


@pytest.mark.requirement("A23")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "(",
        "a and",
        "a ==",
        "== 1",
        "a b",
        '"x"',
        "a not b",
        ")",
        "(" * 1000,
        "not " * 1000,
        "x" * 100_000,
    ],
)
def test_what_is_no_filter_is_refused_in_words(text: str) -> None:
    with pytest.raises(InputError):
        parse_filter(text)


@pytest.mark.requirement("A23")
@given(st.text(alphabet="ab ()=~!<>\"'*m/\\andornti", max_size=60))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        found = parse_filter(text)
    except InputError:
        return
    assert isinstance(found[0], str)


def test_names_may_be_patterns() -> None:
    assert names_filter("name", []) is None
    assert names_filter("name", ["a", "b*"]) == ["|", ["==", "name", "a"], ["=*", "name", "b*"]]


def test_two_filters_both_count() -> None:
    assert both(None, None) is None
    assert both(["?", "a"], None) == ["?", "a"]
    assert both(["?", "a"], ["?", "b"]) == ["&", ["?", "a"], ["?", "b"]]
