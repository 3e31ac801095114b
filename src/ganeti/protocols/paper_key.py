"""A backup key as text for paper: 13 numbered groups of 4 letters or digits and a check letter. Pure.

The check letter of a group finds each wrong letter, each exchange of neighbours and each exchange of groups, so an error
has an address. The id of the key is the check of the whole.
"""

import re
import textwrap

from ganeti.base.backup_ciphers import KEY_BYTES, key_id
from ganeti.base.errors import InputError

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without letters that look like others; I, L and O are read as 1, 1 and 0."""
_ALIKE = str.maketrans("ILO", "110")
GROUPS, _BITS, _IN_GROUP = 13, 5, 4
_TEXT_LIMIT = 16 << 10
_GROUP = re.compile(r"\b([0-9]{1,2}):[ \t]*([0-9A-Za-z]*)")
_ID = re.compile(r"\bkey id:?[ \t]+([0-9A-Fa-f]{16})\b", re.IGNORECASE)
_COLUMNS = 4

_INSTRUCTIONS = """
Keep this sheet where no copy of the backups is. Whoever has it can read them; without it or the cluster, nobody can.

In a cluster: type the groups to a file, and run
    gnt-backup key import FILE
Without a cluster, on any machine with this software:
    gnt-backup decrypt --key-file=FILE DIRECTORY-OF-THE-INSTANCE EMPTY-DIRECTORY
which writes ordinary qcow2 files for qemu-img.

A typing error is reported with the number of its group. Upper and lower case are the same; 0 and O, 1, I and L too.
"""


def groups_of(key: bytes) -> list[str]:
    """Return the groups of a key, each with its check letter."""
    number, count = int.from_bytes(key, "big"), GROUPS * _IN_GROUP
    number <<= count * _BITS - KEY_BYTES * 8
    letters = [number >> _BITS * (count - 1 - at) & 31 for at in range(count)]
    groups = [letters[at : at + _IN_GROUP] for at in range(0, count, _IN_GROUP)]
    return [
        "".join(ALPHABET[one] for one in [*group, _check(index, group)])
        for index, group in enumerate(groups, 1)
    ]


def _check(index: int, letters: list[int]) -> int:
    """Return the check letter: a polynomial over the field with 32 elements."""
    found = index
    for one in letters:
        found = _doubled(found) ^ one
    return _doubled(found)


def _doubled(value: int) -> int:
    value <<= 1
    return value ^ 0b100101 if value & 32 else value


def paper_of(key: bytes, cluster: str, day: str) -> str:
    """Return a page with a key of a cluster, made on that day, and what it is for."""
    groups = [f"{number:>4}: {group}" for number, group in enumerate(groups_of(key), 1)]
    lines = ["  ".join(groups[at : at + _COLUMNS]) for at in range(0, GROUPS, _COLUMNS)]
    head = f"Ganeti backup key of cluster {cluster}, made on {day}\nKey id: {key_id(key)}\n"
    return "\n".join([head, *lines, textwrap.dedent(_INSTRUCTIONS)])


def parse_paper(text: str) -> bytes:
    """Return the key of a page, or of the groups alone; InputError names each wrong group."""
    if len(text) > _TEXT_LIMIT:
        raise InputError("is too long for a backup key", "key")
    numbered = {int(number): group for number, group in _GROUP.findall(text)}
    if not numbered:
        plain = "".join(text.split()).replace("-", "")
        size = _IN_GROUP + 1
        numbered = {at // size + 1: plain[at : at + size] for at in range(0, len(plain), size)}
    missing = [str(number) for number in range(1, GROUPS + 1) if number not in numbered]
    if missing or len(numbered) != GROUPS:
        raise InputError(
            f"has {len(numbered)} groups of letters instead of {GROUPS}"
            + (f"; missing: {', '.join(missing)}" if missing and len(missing) < GROUPS else ""),
            "key",
        )
    key = _key_of([numbered[number] for number in range(1, GROUPS + 1)])
    found = _ID.search(text)
    if found and found.group(1).lower() != key_id(key):
        raise InputError(
            f"the groups are those of backup key {key_id(key)}, not of {found.group(1).lower()}; compare them with the"
            " paper",
            "key",
        )
    return key


def _key_of(groups: list[str]) -> bytes:
    letters, wrong = list[int](), list[str]()
    for index, group in enumerate(groups, 1):
        values = [ALPHABET.find(one) for one in group.upper().translate(_ALIKE)]
        if len(values) != _IN_GROUP + 1 or -1 in values or _check(index, values[:-1]) != values[-1]:
            wrong.append(f"{index} ({group:.12})")
        letters += values[:-1]
    if wrong:
        raise InputError(
            f"wrong groups: {', '.join(wrong)}; compare their letters and their order with the paper",
            "key",
        )
    number = 0
    for one in letters:
        number = number << _BITS | one
    spare = GROUPS * _IN_GROUP * _BITS - KEY_BYTES * 8
    if number & ((1 << spare) - 1):
        raise InputError(f"wrong groups: {GROUPS}; compare its letters with the paper", "key")
    return (number >> spare).to_bytes(KEY_BYTES, "big")
