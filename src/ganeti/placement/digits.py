"""Figures with eight digits, as upstream prints them."""

from decimal import Decimal

LARGEST = 1e15
"""Beyond it digits after the point mean nothing."""


def digits(value: float) -> str:
    """Eight digits after the point; a tie of the digits that a float is written with goes to the even one.

    Formatting the float itself decides such a tie by what its binary value lies beside.
    """
    if not abs(value) < LARGEST:
        return f"{value:.8f}"
    return f"{Decimal(repr(float(value))).quantize(Decimal('1.00000000')):f}"
