import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import InputError
from ganeti.bootstrap.token import JoinToken, decode_token, is_proof, proof

TOKEN = JoinToken(address="192.0.2.7", port=4711, fingerprint="ab" * 32, secret="cd" * 32)
NONCES = ("11" * 32, "22" * 32)


def changed(**fields: object) -> JoinToken:
    return msgspec.structs.replace(TOKEN, **fields)


def test_a_token_is_one_word_and_comes_back_whole() -> None:
    line = TOKEN.encode()
    assert line.isascii()
    assert not set(line) & set(" \n=+/")
    assert decode_token(f"  {line}\n") == TOKEN


@pytest.mark.requirement("G23")
def test_the_secret_is_not_in_what_is_printed_by_mistake() -> None:
    assert TOKEN.secret not in repr(TOKEN)
    assert TOKEN.secret not in str([TOKEN])


@pytest.mark.parametrize(
    "token",
    [
        changed(address="host.example"),
        changed(address=""),
        changed(port=0),
        changed(port=65536),
        changed(port=-1),
        changed(fingerprint="AB" * 32),
        changed(fingerprint=""),
        changed(secret="cd" * 31),
        changed(version=2),
    ],
    ids=str,
)
def test_a_token_with_a_wrong_part_is_refused(token: JoinToken) -> None:
    with pytest.raises(InputError, match="token"):
        decode_token(token.encode())


@given(st.text(max_size=1500))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="token"):
        decode_token(text)


def test_a_proof_holds_for_one_end_one_conversation_and_one_token() -> None:
    shown = proof(TOKEN, "master", NONCES)
    assert is_proof(TOKEN, "master", NONCES, shown)
    assert not is_proof(TOKEN, "node", NONCES, shown)
    assert not is_proof(TOKEN, "master", (NONCES[1], NONCES[0]), shown)
    assert not is_proof(changed(secret="00" * 32), "master", NONCES, shown)
    assert not is_proof(changed(fingerprint="00" * 32), "master", NONCES, shown)
    assert not is_proof(TOKEN, "master", NONCES, "")
    assert not is_proof(TOKEN, "master", NONCES, "ö")
    assert TOKEN.secret not in shown
