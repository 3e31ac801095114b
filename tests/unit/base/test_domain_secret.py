"""Signatures between clusters: what was signed, exactly that, and only with the same secret."""

import re
from collections.abc import Callable

import pytest

from ganeti.base import certificates
from ganeti.base.domain_secret import (
    HEADER,
    check_handshake,
    check_not_expired,
    digest,
    is_signed,
    new_handshake,
    new_secret,
    sign_certificate,
    sign_disk,
    sign_text,
    verified_certificate,
    verified_disk,
)
from ganeti.base.errors import InputError

SECRET = "0123456789abcdef0123456789abcdef01234567"
NOW = 1_700_000_000.0


def certificate() -> str:
    return certificates.for_transfer(certificates.new_key(), "x509-abcdefgh", NOW).decode()


@pytest.mark.requirement("S206")
def test_a_secret_is_forty_digits_and_never_the_same() -> None:
    assert re.fullmatch("[0-9a-f]{40}", new_secret())
    assert new_secret() != new_secret()


@pytest.mark.requirement("S208", "S223")
def test_a_signature_is_that_of_ganeti() -> None:
    # hmac.new(key, salt + text, sha1), which Ganeti has as utils.Sha1Hmac
    assert digest("secret", "text", "salt") == "2d26dd965839d731b9a206afae8dd2193726922d"
    text, claimed, salt = sign_text(SECRET, "x509-abc")
    assert is_signed(SECRET, text, claimed, salt)
    assert is_signed(SECRET, text, claimed.upper(), salt)
    assert not is_signed(SECRET, text + "d", claimed, salt)
    assert not is_signed(new_secret(), text, claimed, salt)
    for wrong in ("", "a/b", "ä", salt + "$"):
        assert not is_signed(SECRET, text, claimed, wrong)


@pytest.mark.requirement("S208", "S223")
def test_what_stands_around_a_signed_certificate_does_not_matter() -> None:
    pem = certificate()
    signed = sign_certificate(SECRET, f"some text\n{pem}")
    assert re.match(rf"{HEADER}: [a-zA-Z0-9]+/[0-9a-f]{{40}}\n\n-----BEGIN", signed)
    assert verified_certificate(SECRET, signed) == pem
    assert verified_certificate(SECRET, f"before\n{signed}\nafter\n") == pem


@pytest.mark.requirement("A60", "S213")
@pytest.mark.parametrize(
    "change",
    [
        lambda signed, _other: signed.replace("-----BEGIN CERTIFICATE-----\nMI", "-----BEGIN CERTIFICATE-----\nMJ"),
        lambda signed, other: signed + other,
        lambda signed, other: other + signed,
        lambda signed, other: signed.partition("-----BEGIN")[0] + other,
        lambda signed, _other: signed.splitlines()[0] + "\n" + signed,
        lambda signed, _other: signed.replace(f"{HEADER}: ", f"{HEADER}: $"),
        lambda signed, _other: signed.partition("\n")[2],
        lambda _signed, _other: "",
        lambda signed, _other: signed + " " * 20_000,
    ],
)  # fmt: skip
def test_a_certificate_that_was_tampered_with_is_refused(
    change: Callable[[str, str], str],
) -> None:
    signed = sign_certificate(SECRET, certificate())
    with pytest.raises(InputError):
        verified_certificate(SECRET, change(signed, certificate()))
    with pytest.raises(InputError, match="not signed with this cluster's secret"):
        verified_certificate(new_secret(), signed)


@pytest.mark.requirement("S205", "S213")
def test_a_certificate_holds_for_a_day() -> None:
    pem = certificate()
    check_not_expired(pem, NOW)
    check_not_expired(pem, NOW + 24 * 3600 - 1)
    for moment in (NOW + 24 * 3600 + 1, NOW - 2 * 24 * 3600):
        with pytest.raises(InputError, match="X509 certificate is expired"):
            check_not_expired(pem, moment)


@pytest.mark.requirement("S207")
def test_a_handshake_needs_the_same_secret() -> None:
    good = new_handshake(SECRET)
    check_handshake(SECRET, good)
    bad: list[object] = [None, [], ["0", *good[1:]], [1, *good[1:]], [0, good[1], 7], good[:2]]
    for wrong in bad:
        with pytest.raises(InputError, match="source_handshake"):
            check_handshake(SECRET, wrong)
    with pytest.raises(InputError, match="a different domain secret"):
        check_handshake(new_secret(), good)


@pytest.mark.requirement("S209")
def test_the_address_of_a_disk_is_signed_with_its_number() -> None:
    info = sign_disk(SECRET, 1, "192.0.2.1", 40000, "magic")
    assert verified_disk(SECRET, 1, info) == ("192.0.2.1", 40000, "magic")
    forged = ["192.0.2.1", 40001, *info[2:]]
    for index, wrong in ((0, info), (1, forged), (1, info[:4]), (1, None), (1, "x")):
        with pytest.raises(InputError, match="target_node"):
            verified_disk(SECRET, index, wrong)
