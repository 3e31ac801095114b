"""Datagrams of confd: golden bytes, and all that is answered by silence."""

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.protocols.confd import (
    MAGIC,
    PACKET_LIMIT,
    NodeRole,
    QueryType,
    Request,
    Status,
    pack,
    pack_answer,
    pack_request,
    parse_answer,
    parse_request,
    signature,
)

KEY = b"0123456789abcdef0123456789abcdef"
NOW = 1249637704
RSALT = "9aa6ce92-8336-11de-af38-001d093e835f"
QUERY = f'{{"type": 1, "rsalt": "{RSALT}", "protocol": 1, "query": "node1.example.com"}}\n'
QUERY_HMAC = "4d367ebfb29db092bbec0d1f61275486d7026ff6"
ANSWER = '{"status": 0, "answer": 0, "serial": 42, "protocol": 1}\n'
ANSWER_HMAC = "997427ce6901013d9800596c9abddc1c8cde0c87"


def datagram(msg: Any = QUERY, salt: Any = str(NOW), mac: Any = QUERY_HMAC, **more: Any) -> bytes:
    return MAGIC + json.dumps({"msg": msg, "salt": salt, "hmac": mac, **more}).encode()


def signed(message: str, salt: str = str(NOW)) -> bytes:
    return pack(KEY, salt, message.encode())


def is_heard(packet: bytes, now: float = NOW) -> bool:
    return parse_request(packet, (KEY,), now) is not None


@pytest.mark.requirement("S57", "S58", "S59")
def test_the_query_of_the_seed_is_understood_as_openssl_signs_it() -> None:
    """HMACs here were computed by `openssl dgst -sha1 -hmac KEY` over salt and message."""
    asked = parse_request(datagram(), (KEY,), NOW)
    assert asked is not None
    assert asked.request == Request(1, QueryType.NODE_ROLE_BY_NAME, RSALT, "node1.example.com")
    assert signature(KEY, str(NOW), QUERY) == QUERY_HMAC
    assert signature(KEY, RSALT, ANSWER) == ANSWER_HMAC


@pytest.mark.requirement("S59")
def test_openssl_agrees_today() -> None:
    packet = json.loads(pack_request(KEY, Request(1, 3, "salt ä"), NOW)[4:])
    said = subprocess.run(
        ["openssl", "dgst", "-sha1", "-hmac", KEY.decode()],
        input=(packet["salt"] + packet["msg"]).encode(),
        capture_output=True,
        check=True,
    ).stdout.decode()
    assert said.split()[-1] == packet["hmac"]


@pytest.mark.requirement("S60", "S55")
def test_an_answer_has_its_fields_and_the_salt_that_was_asked_for() -> None:
    asked = parse_request(datagram(), (KEY,), NOW)
    assert asked is not None
    packet = pack_answer(asked, Status.OK, 0, 42)
    outer = json.loads(packet[4:])
    assert packet[:4] == b"plj0"
    assert outer.keys() == {"msg", "salt", "hmac"}
    assert outer["salt"] == RSALT
    inner = json.loads(outer["msg"])
    assert inner == {"protocol": 1, "status": 0, "answer": 0, "serial": 42}
    answer = parse_answer(packet, KEY, RSALT)
    assert answer is not None
    assert (answer.status, answer.answer, answer.serial) == (Status.OK, 0, 42)


@pytest.mark.requirement("S60")
def test_ganetis_answer_is_understood() -> None:
    answer = parse_answer(datagram(ANSWER, RSALT, ANSWER_HMAC), KEY, RSALT)
    assert answer is not None
    assert answer.serial == 42


@pytest.mark.requirement("S62")
def test_the_numbers_are_ganetis() -> None:
    assert [QueryType(number).name for number in range(12)] == [
        *("PING", "NODE_ROLE_BY_NAME", "NODE_IP_BY_INSTANCE_IP", "MASTER", "NODE_IPS"),
        *("CANDIDATE_IPS", "INSTANCE_IPS", "NODE_DRBD", "NODE_INSTANCES", "INSTANCE_DISKS"),
        *("CONFIG_VALUE", "DATA_COLLECTORS"),
    ]
    assert [role.name for role in sorted(NodeRole)] == [
        *("MASTER", "CANDIDATE", "OFFLINE", "DRAINED", "REGULAR")
    ]


@pytest.mark.requirement("A33", "S57", "G25")
@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"plj0",
        b"plj1" + datagram()[4:],
        b"PLJ0" + datagram()[4:],
        datagram()[4:],
        b"plj0{",
        b"plj0[]",
        datagram()[:-1],
        datagram() + b"x",
        datagram(mac="0" * 40),
        datagram(mac=QUERY_HMAC.upper()),
        datagram(mac=QUERY_HMAC[:-1]),
        datagram(mac=QUERY_HMAC + "\n"),
        datagram(mac=""),
        datagram(mac="é" * 40),
        datagram(mac=signature(b"another key", str(NOW), QUERY)),
        datagram(mac=1),
        datagram(msg=1),
        datagram(msg=json.loads(QUERY)),
        datagram(salt=NOW),
        datagram(extra=[[[]]]),
        pack(KEY, "", QUERY.encode()),
        MAGIC + b"[" * 20_000,
        MAGIC + b'{"msg":' * 8_000,
        MAGIC + b"\xff\xfe\x00",
    ],
)
def test_an_answer_without_the_key_is_ignored(packet: bytes) -> None:
    assert not is_heard(packet)


@pytest.mark.requirement("S54", "A34", "A39")
@pytest.mark.parametrize(
    ("salt", "heard"),
    [
        *((str(NOW + offset), abs(offset) < 301) for offset in (0, 299, -299, 301, -301, 600)),
        *((salt, False) for salt in ("0", "1000000000000000000", f"-{NOW}", f"+{NOW}", "1e9")),
        *((salt, False) for salt in (f" {NOW}", f"{NOW} ", f"{NOW}\n", f"0{NOW}", f"{NOW}.0")),
        *((salt, False) for salt in ("", "9" * 400, "١٢٤٩٦٣٧٧٠٤", hex(NOW), f"{NOW:_}", "nan")),
    ],
)
def test_a_query_counts_for_five_minutes(salt: str, heard: bool) -> None:
    assert is_heard(signed(QUERY, salt)) is heard


@pytest.mark.requirement("A34")
def test_the_same_datagram_counts_again_while_it_is_fresh() -> None:
    assert [is_heard(datagram(), NOW + late) for late in (0, 1, 299, 301)] == [
        *(True, True, True, False)
    ]


@pytest.mark.requirement("A35")
def test_the_border_between_salt_and_message_cannot_be_moved() -> None:
    """The HMAC covers both in a row: a digit may wander without being noticed by it."""
    text = str(NOW) + QUERY
    heard = [
        cut
        for cut in range(len(text))
        if is_heard(datagram(text[cut:], text[:cut]), NOW)
        or is_heard(datagram(text[cut:], text[:cut]), int(text[: min(cut, 10)] or 0))
    ]
    assert heard == [len(str(NOW))]
    assert signature(KEY, text[:9], text[9:]) == QUERY_HMAC


@pytest.mark.requirement("S58")
@pytest.mark.parametrize(
    "inner",
    [
        {"protocol": 2, "type": 0, "rsalt": "r"},
        {"protocol": "1", "type": 0, "rsalt": "r"},
        {"protocol": 1, "type": "0", "rsalt": "r"},
        {"protocol": 1, "type": 0, "rsalt": ""},
        {"protocol": 1, "type": 0, "rsalt": "r" * 300},
        {"protocol": 1, "type": 0, "rsalt": 7},
        {"protocol": 1, "type": 0},
        {"protocol": 1, "rsalt": "r"},
        {"protocol": 1, "type": 0, "rsalt": "r", "query": [1]},
        {"protocol": 1, "type": 0, "rsalt": "r", "query": {"1": {"2": {}}}},
        {"protocol": 1, "type": 0, "rsalt": "r", "query": {"1": [[]]}},
        {"protocol": 1, "type": 0, "rsalt": "r", "query": 1.5},
        [],
        "text",
        None,
    ],
)
def test_a_signed_message_of_another_form_is_ignored(inner: Any) -> None:
    assert not is_heard(signed(json.dumps(inner)))


@pytest.mark.requirement("S58")
@pytest.mark.parametrize("query", ["", "node1", None, 5, {"3": [0, "1"]}, {"0": "br0", "2": ["a"]}])
def test_queries_have_the_forms_of_ganeti(query: Any) -> None:
    packet = signed(json.dumps({"protocol": 1, "type": 2, "rsalt": "r", "query": query}))
    asked = parse_request(packet, (KEY,), NOW)
    assert asked is not None
    assert asked.request.query == query


@pytest.mark.requirement("A36", "S55")
def test_an_answer_for_another_client_is_ignored() -> None:
    asked = parse_request(datagram(), (KEY,), NOW)
    assert asked is not None
    packet = pack_answer(asked, Status.OK, "x", 1)
    assert parse_answer(packet, KEY, RSALT)
    assert parse_answer(packet, KEY, RSALT + "0") is None
    assert parse_answer(packet, b"other", RSALT) is None
    assert parse_answer(datagram(), KEY, str(NOW)) is None


@pytest.mark.requirement("A37")
def test_no_datagram_is_longer_than_the_limit() -> None:
    asked = parse_request(datagram(), (KEY,), NOW)
    assert asked is not None
    packet = pack_answer(asked, Status.OK, ["x" * 100] * 1000, 1)
    answer = parse_answer(packet, KEY, RSALT)
    assert answer is not None
    assert answer.status == Status.ERROR
    assert "too long" in answer.answer
    long = {"protocol": 1, "type": 0, "rsalt": "r", "query": "x" * PACKET_LIMIT}
    assert not is_heard(signed(json.dumps(long)))


@pytest.mark.requirement("S51")
def test_while_the_key_is_renewed_both_count_and_each_is_answered_with_its_own() -> None:
    old, new = b"the former key", b"the key of tomorrow"
    for key in (old, new):
        asked = parse_request(pack_request(key, Request(1, 0, "r"), NOW), (new, old), NOW)
        assert asked is not None
        assert parse_answer(pack_answer(asked, Status.OK, 1, 1), key, "r")
    assert parse_request(pack_request(old, Request(1, 0, "r"), NOW), (new,), NOW) is None


@pytest.mark.requirement("A33", "G25")
@given(data=st.binary(max_size=300), at=st.integers(0, 250), magic=st.booleans())
def test_unsigned_bytes_are_ignored_without_an_error(data: bytes, at: int, magic: bool) -> None:
    assert not is_heard((MAGIC if magic else b"") + data)
    broken = bytearray(datagram())
    broken[at % len(broken)] ^= data[0] | 1 if data else 1
    try:
        same = json.loads(broken[4:]) == json.loads(datagram()[4:])
    except (ValueError, UnicodeDecodeError):
        same = False
    assert is_heard(bytes(broken)) is (same and broken[:4] == MAGIC)
