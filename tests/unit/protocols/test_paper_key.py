"""A backup key on paper: each typing error has an address."""

import random

import pytest

from ganeti.base.backup_ciphers import key_id
from ganeti.base.errors import InputError
from ganeti.protocols.paper_key import ALPHABET, groups_of, paper_of, parse_paper

KEY = bytes(range(7, 39))


def test_page_and_groups_give_the_key_back() -> None:
    rng = random.Random(1)
    for key in (KEY, bytes(32), bytes([255] * 32), rng.randbytes(32)):
        page = paper_of(key, "cluster.example.com", "2026-11-28")
        assert parse_paper(page) == key
        assert f"Key id: {key_id(key)}" in page
        assert all(len(line) <= 120 for line in page.splitlines())
        assert parse_paper(" ".join(groups_of(key))) == key
        assert parse_paper("-".join(groups_of(key)).lower()) == key


def test_letters_that_look_alike_are_the_same() -> None:
    text = " ".join(groups_of(KEY))
    assert parse_paper(text.replace("0", "O").replace("1", "l")) == KEY


def test_every_wrong_letter_is_named() -> None:
    groups = groups_of(KEY)
    for number, group in enumerate(groups, 1):
        for at, old in enumerate(group):
            for new in set(ALPHABET) - {old}:
                wrong = [*groups]
                wrong[number - 1] = group[:at] + new + group[at + 1 :]
                with pytest.raises(InputError, match=rf"wrong groups: {number} \("):
                    parse_paper(" ".join(wrong))


def test_exchanged_letters_and_groups_are_named() -> None:
    groups = groups_of(KEY)
    for number, group in enumerate(groups, 1):
        for at in range(4):
            if group[at] == group[at + 1]:
                continue
            wrong = [*groups]
            wrong[number - 1] = group[:at] + group[at + 1] + group[at] + group[at + 2 :]
            with pytest.raises(InputError, match=rf"wrong groups: {number} \("):
                parse_paper(" ".join(wrong))
    for at in range(12):
        wrong = [*groups]
        wrong[at], wrong[at + 1] = wrong[at + 1], wrong[at]
        with pytest.raises(InputError, match=rf"wrong groups: {at + 1} .*{at + 2} \("):
            parse_paper(" ".join(wrong))


def test_missing_groups_and_another_id_are_named() -> None:
    page = paper_of(KEY, "c", "2026-11-28")
    with pytest.raises(InputError, match="missing: 7"):
        parse_paper(page.replace("7: ", "x "))
    with pytest.raises(InputError, match=f"those of backup key {key_id(KEY)}"):
        parse_paper(page.replace(key_id(KEY), "0" * 16))
    for text in ("", "abc", "x" * 100_000, " ".join(groups_of(KEY)) + " 00000", "\0ü" * 50):
        with pytest.raises(InputError):
            parse_paper(text)
