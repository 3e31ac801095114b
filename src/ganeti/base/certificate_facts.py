"""Facts that daemons read from certificates in PEM form while they run: validity, and the identity of a node.

These few fields are read from the DER form directly: the library that creates and verifies certificates takes 9 MiB
of each daemon's memory. No signature is verified here (`certificates.is_signed_by`).
"""

import datetime as dt
import functools
import ssl
from collections.abc import Iterator

from ganeti.base.errors import InputError

SEQUENCE, OBJECT_IDENTIFIER, OCTETS, UTC_TIME, GENERALIZED_TIME = 0x30, 0x06, 0x04, 0x17, 0x18
VERSION, EXTENSIONS = 0xA0, 0xA3
"""The explicit tags of a certificate's first and last field."""
ALTERNATIVE_NAMES = bytes((0x55, 0x1D, 0x11))
"""The object identifier 2.5.29.17."""
DNS_NAME, URI = 0x82, 0x86
"""Tags of alternative names."""
LENGTH_BYTES = 4
"""Maximum number of bytes of a length."""
FIRST_CENTURY_YEAR = 50
"""The two digits of a year from which on a UTCTime lies in the 20th century (RFC 5280)."""

Element = tuple[int, bytes]
"""Tag and content of one element."""


def validity(certificate: bytes) -> tuple[float, float]:
    """Return the first and the last second in which a certificate is valid; InputError if it cannot be read."""
    try:
        begin, end = _elements(_fields(certificate)[3][1])
        return _seconds(begin), _seconds(end)
    except (ValueError, LookupError) as err:
        raise _unreadable() from err


@functools.lru_cache(maxsize=4)
def node_identity(certificate: bytes) -> tuple[str, str]:
    """Return (UUID, name) of a node's certificate; InputError for other certificates.

    The last results are kept: a node reads its own certificate at each start of an instance.
    """
    try:
        names = _alternative_names(_fields(certificate))
    except (ValueError, LookupError) as err:
        raise _unreadable() from err
    uuids = [value for tag, value in names if tag == URI]
    hosts = [value for tag, value in names if tag == DNS_NAME]
    if len(uuids) != 1 or not uuids[0].startswith("urn:uuid:") or len(hosts) != 1:
        raise InputError("this certificate does not name a node")
    return uuids[0].removeprefix("urn:uuid:"), hosts[0]


def _unreadable() -> InputError:
    return InputError("this is not a certificate in PEM form")


def _fields(certificate: bytes) -> list[Element]:
    """Return the signed fields of the first certificate: serial number, algorithm, issuer, validity, subject, key and more."""
    text = certificate.decode("ascii", "replace")
    begin = text.index(ssl.PEM_HEADER)
    end = text.index(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)
    [(_, whole)] = _elements(ssl.PEM_cert_to_DER_cert(text[begin:end]))
    (tag, signed), *_ = _elements(whole)
    if tag != SEQUENCE:
        raise ValueError(tag)
    fields = list(_elements(signed))
    return fields[1:] if fields[0][0] == VERSION else fields


def _alternative_names(fields: list[Element]) -> list[tuple[int, str]]:
    tag, content = fields[-1]
    if tag != EXTENSIONS:
        return []
    [(_, extensions)] = _elements(content)
    for _, extension in _elements(extensions):
        (kind, identifier), *_, (form, value) = _elements(extension)
        if (kind, form) != (OBJECT_IDENTIFIER, OCTETS):
            raise ValueError(kind, form)
        if identifier == ALTERNATIVE_NAMES:
            [(_, names)] = _elements(value)
            return [
                (of, name.decode("ascii")) for of, name in _elements(names) if of in (DNS_NAME, URI)
            ]
    return []


def _elements(der: bytes) -> Iterator[Element]:
    """Yield the elements of a DER form, one after the other; ValueError or IndexError if it is malformed."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= LENGTH_BYTES:
                raise ValueError(count)
            length, at = int.from_bytes(der[at : at + count], "big"), at + count
        if at + length > len(der):
            raise ValueError(length)
        yield tag, der[at : at + length]
        at += length


def _seconds(time: Element) -> float:
    tag, content = time
    text = content.decode("ascii")
    if tag == UTC_TIME:
        text = f"{'19' if int(text[:2]) >= FIRST_CENTURY_YEAR else '20'}{text}"
    elif tag != GENERALIZED_TIME:
        raise ValueError(tag)
    return dt.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=dt.UTC).timestamp()
