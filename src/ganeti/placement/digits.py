"""Numbers as upstream prints them."""

from decimal import Decimal

LEAST_PLAIN, MOST_PLAIN = 0.1, 1e7
"""The range of numbers that are written without an exponent."""
LARGEST = 1e15
"""Above this number, digits after the point carry no information."""


def digits(value: float) -> str:
    """Eight digits after the point; a tie of the shortest decimal form is rounded to the even digit.

    Formatting the float itself would decide such a tie by its binary value.
    """
    if not abs(value) < LARGEST:
        return f"{value:.8f}"
    return f"{Decimal(repr(float(value))).quantize(Decimal('1.00000000')):f}"


def short(value: float) -> str:
    """Return a number for a sentence: six digits after the point."""
    return f"{value:.6f}" if _is_plain(value) else _without_padding(f"{value:.6e}")


def all_digits(value: float) -> str:
    """Return all digits of a number, at least one after the point."""
    if _is_plain(value):
        return repr(float(value))
    figures = Decimal(repr(float(value))).normalize().as_tuple().digits
    return _without_padding(f"{value:.{max(1, len(figures) - 1)}e}")


def without_exponent(value: float) -> str:
    """Return all digits of a number, however small or large."""
    text = f"{Decimal(repr(float(value))):f}"
    return text if "." in text else f"{text}.0"


def _is_plain(value: float) -> bool:
    return value == 0 or LEAST_PLAIN <= abs(value) < MOST_PLAIN


def _without_padding(text: str) -> str:
    """`1.0e-09` as `1.0e-9`, `1.0e+22` as `1.0e22`."""
    figures, _, exponent = text.partition("e")
    return f"{figures}e{int(exponent)}" if exponent else text
