import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base import errors
from ganeti.base.errors import ErrorCode, InputError, PrereqError, ProtocolError
from ganeti.protocols import luxi
from ganeti.protocols.luxi import (
    END,
    Answer,
    MessageBuffer,
    MessageTooLongError,
    RemoteError,
    encode_request,
    error_from_wire,
    error_of,
    error_to_wire,
    parse_answer,
    refusal,
)
from ganeti.protocols.luxi_requests import (
    PART_BYTES,
    answer_parts,
    encode_answer,
    parse_request,
)

MESSAGES = st.lists(st.binary(max_size=50).filter(lambda data: END not in data), max_size=8)


@pytest.mark.requirement("S190", "A20")
@given(messages=MESSAGES, cuts=st.lists(st.integers(0, 400), max_size=10))
def test_messages_come_out_whole_however_the_stream_is_cut(
    messages: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(message + END for message in messages)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    buffer = MessageBuffer()
    found = [
        message
        for begin, end in itertools.pairwise(places)
        for message in buffer.feed(stream[begin:end])
    ]
    assert found == messages
    assert buffer.pending_bytes == 0


def test_a_part_of_a_message_is_counted_and_kept() -> None:
    buffer = MessageBuffer()
    assert buffer.feed(b"one" + END + b"tw") == [b"one"]
    assert buffer.pending_bytes == 2
    assert buffer.feed(b"o" + END) == [b"two"]


@pytest.mark.requirement("A20")
def test_a_message_without_end_is_refused_at_the_limit() -> None:
    buffer = MessageBuffer(limit=10)
    assert buffer.feed(b"0123456789") == []
    with pytest.raises(MessageTooLongError, match="longer than 10 bytes"):
        buffer.feed(b"x")


def test_a_message_of_exactly_the_limit_is_taken() -> None:
    assert MessageBuffer(limit=3).feed(b"abc" + END) == [b"abc"]


def test_a_request_reads_back() -> None:
    data = encode_request("Query", ["node", ["name"], None])
    assert data.endswith(END)
    assert json.loads(data[:-1])["version"] == 3_000_000
    assert parse_request(data[:-1]) == luxi.Request("Query", ["node", ["name"], None])


@pytest.mark.parametrize(
    "data",
    [
        b'{"method":"Query","args":[]}',
        b'{"method":"Query","args":[],"version":2170000}',
        b'{"method":"Query","args":[],"version":null}',
    ],
)
def test_any_version_or_none_is_accepted(data: bytes) -> None:
    assert parse_request(data).method == "Query"


@pytest.mark.requirement("A11", "A22")
@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "request"),
        (b"\xff\xfe", "request"),
        (b"[]", "object"),
        (b'"x"', "object"),
        (b"{}", "request.method"),
        (b'{"method":1,"args":[]}', "request.method"),
        (b'{"method":"Query"}', "request.args"),
        (b'{"method":"Query","args":{}}', "request.args"),
        (b'{"method":"Query","args":[],"x":1}', "unknown key"),
        (b'{"method":"Query","method":"Query","args":[]}', "twice"),
        (b'{"method":"Query","args":[NaN]}', "NaN"),
        (b'{"method":"Query","args":[' + b"[" * 80 + b"]" * 80 + b"]}", "nested"),
        (b'{"method":"Query","args":["\\ud800"]}', "surrogate"),
        (b'{"method":"Query","args":["\\u0000"]}', "NUL"),
    ],
)
def test_a_malformed_request_names_the_fault(data: bytes, part: str) -> None:
    with pytest.raises(InputError, match=part):
        parse_request(data)


def test_an_answer_reads_back_and_has_upstreams_keys() -> None:
    data = encode_answer(Answer(True, [1, None, "\x03"]))
    assert data.count(END) == 1
    assert list(json.loads(data[:-1])) == ["success", "result"]
    assert parse_answer(data[:-1]) == Answer(True, [1, None, "\x03"])


def test_degraded_is_an_extra_key_only_while_it_is_so() -> None:
    data = encode_answer(Answer(True, None, degraded=True))
    assert json.loads(data[:-1]) == {"success": True, "result": None, "degraded": True}
    assert parse_answer(data[:-1]).degraded


def test_something_else_is_no_answer() -> None:
    with pytest.raises(ProtocolError, match="cannot be read"):
        parse_answer(b"hello")


@pytest.mark.parametrize(
    "err",
    [
        PrereqError("no such thing", ErrorCode.UNKNOWN_ENTITY),
        errors.JobLost("gone"),
        errors.JobQueueDrained("drained"),
        errors.ExecError("broke"),
    ],
)
def test_an_error_is_raised_again_as_the_same_class(err: errors.GanetiError) -> None:
    again = error_from_wire(error_to_wire(err))
    assert type(again) is type(err)
    assert again.message == err.message
    assert again.wire_args() == err.wire_args()


@pytest.mark.parametrize(
    "err",
    [
        errors.RpcOffline("node2", "is offline"),
        errors.RpcFailed("node2", "no such volume", "StorageError"),
        errors.RpcUnknown("node2", "no answer"),
        errors.GuestOsError("a script failed"),
        errors.StorageError("no such volume"),
        errors.NotMaster("follower"),
        errors.CommitUnknown("timeout"),
    ],
)
def test_upstreams_clients_get_an_error_that_they_know(err: errors.GanetiError) -> None:
    assert error_to_wire(err) == ["OpExecError", [err.message]]


def test_an_answer_keeps_the_closer_name_for_our_clients() -> None:
    answer = parse_answer(encode_answer(refusal(errors.NotMaster("follower")))[:-1])
    assert answer.result == ["OpExecError", ["follower"]]
    assert isinstance(error_of(answer), errors.NotMaster)
    plain = encode_answer(refusal(errors.ExecError("broke")))
    assert b'"error"' not in plain
    assert isinstance(error_of(parse_answer(plain[:-1])), errors.ExecError)


@pytest.mark.parametrize(
    ("value", "name", "message"),
    [
        ("Failed to parse request: x", "GenericError", "Failed to parse request: x"),
        (["RPCError", ["node n: x"]], "RPCError", "node n: x"),
        (["HooksAbort", ["a", 1]], "HooksAbort", "a, 1"),
        (None, "GenericError", "None"),
    ],
)
def test_an_unknown_error_keeps_its_name_and_words(value: object, name: str, message: str) -> None:
    again = error_from_wire(value)
    assert isinstance(again, RemoteError)
    assert (again.name, again.message) == (name, message)


ROWS = [[number, "\x04 ä \x03", {"a": [None]}] for number in range(20_000)]


@pytest.mark.requirement("S189", "S190")
@pytest.mark.parametrize(
    "result", [ROWS, {"fields": [{"name": "id"}], "data": ROWS}, {"data": []}, [], None, "x", {}]
)
@pytest.mark.parametrize("marks", [{}, {"degraded": True, "error": "JobLost"}])
def test_a_large_answer_is_the_same_message_in_parts_of_bounded_size(
    result: object, marks: dict[str, Any]
) -> None:
    answer = Answer(success=True, result=result, **marks)
    parts = list(answer_parts(answer))
    assert b"".join(parts) == encode_answer(answer)
    assert all(len(part) < 2 * PART_BYTES for part in parts)
    assert all(len(part) >= PART_BYTES for part in parts[:-1])
