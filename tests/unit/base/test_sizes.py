"""Sizes as people write and read them."""

import pytest

from ganeti.base.errors import InputError
from ganeti.base.sizes import format_mib, parse_mib


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("512", 512),
        ("512m", 512),
        ("1g", 1024),
        ("1G", 1024),
        ("1.5t", 1572864),
        ("0.0001g", 1),
        ("2 GiB", 2048),
    ],
)
def test_sizes_are_read_as_mib(text: str, mib: int) -> None:
    assert parse_mib(text) == mib


@pytest.mark.parametrize("text", ["", "g", "-1", "1e3", "1k", "1gg", "\u0661g", "1g\n2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_mib(text)


@pytest.mark.parametrize(
    ("size", "units", "text"),
    [
        (892, "h", "892M"),
        (1536, "h", "1.5G"),
        (24105, "h", "23.5G"),
        (3 << 20, "h", "3.0T"),
        (1536, "m", "1536"),
        (1536, "g", "1.5"),
    ],
)
def test_sizes_are_shown_as_ganeti_shows_them(size: int, units: str, text: str) -> None:
    assert format_mib(size, units) == text
