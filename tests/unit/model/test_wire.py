"""Documents from outside: what is refused, and what is not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import InputError
from ganeti.model.wire import DEPTH_LIMIT, parse_foreign


@pytest.mark.requirement("A11")
@pytest.mark.parametrize(
    "data",
    [
        b"[" * (DEPTH_LIMIT + 1) + b"]" * (DEPTH_LIMIT + 1),
        b"[" * 1_000_000,
        b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
        b'{"a": 1, "a": 2}',
        b"[NaN]",
        b"[Infinity]",
        b"[1e999]",
        b"[" + b"9" * 5_000 + b"]",
        b"[9223372036854775808]",
        b'{"a": "\\ud800"}',
        b'{"a": ["\\u0000"]}',
        b'{"\\u0000": 1}',
        b"\xef\xbb\xbf[]",
        "[]".encode("utf-16"),
        b"\xff",
        b"",
        b"{",
    ],
)
def test_dangerous_documents_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_foreign(data)


def test_brackets_inside_strings_are_no_depth() -> None:
    text = '["' + "[" * 200 + '\\"' + "{" * 200 + '"]'
    assert parse_foreign(text.encode()) == ["[" * 200 + '"' + "{" * 200]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_flat_requests_are_read_as_json_reads_them(value: object, is_compact: bool) -> None:
    request = {"method": "M", "args": [value, [value]], "version": 3}
    text = json.dumps(request, separators=(",", ":") if is_compact else None)
    assert parse_foreign(text.encode()) == request


@pytest.mark.requirement("A11")
@pytest.mark.parametrize(
    "data",
    [
        b'{"method":"M","args":[9223372036854775808]}',
        b'{"method":"M","args":[1e999]}',
        b'{"method":"M","args":[],"args":[1]}',
        b'{"method":"M","method":"N:"}',
        b'{"method":"M","args":["\\u0000"]}',
        b'{"method":"M","args":["\\ud800"]}',
        b'{"method":"M","args":[NaN]}',
        b'{"method":"M","args":["\x00"]}',
        b'{"method":"M","args":[] } x',
        b'{"args":' + b"[" * DEPTH_LIMIT + b"]" * DEPTH_LIMIT + b"}",
    ],
)
def test_dangerous_requests_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_foreign(data)


@given(JSON)
def test_ordinary_documents_are_read_as_json_reads_them(value: object) -> None:
    assert parse_foreign(json.dumps(value).encode()) == value
