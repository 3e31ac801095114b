import pytest

from ganeti.placement.digits import all_digits, digits, short, without_exponent

# (number, in a sentence, with all digits), as Debian's htools 3.0.2 print them.
PRINTED = [
    (0.0, "0.000000", "0.0"),
    (1e-9, "1.000000e-9", "1.0e-9"),
    (0.0020134334, "2.013433e-3", "2.0134334e-3"),
    (0.05, "5.000000e-2", "5.0e-2"),
    (0.1, "0.100000", "0.1"),
    (-0.25, "-0.250000", "-0.25"),
    (2.2423841, "2.242384", "2.2423841"),
    (1234567.8, "1234567.800000", "1234567.8"),
    (12345678.9, "1.234568e7", "1.23456789e7"),
    (1e22, "1.000000e22", "1.0e22"),
]


@pytest.mark.parametrize(("value", "in_a_sentence", "whole"), PRINTED)
def test_numbers_are_printed_as_upstream_does(value: float, in_a_sentence: str, whole: str) -> None:
    assert short(value) == in_a_sentence
    assert all_digits(value) == whole
    assert float(whole) == value


def test_a_tie_of_digits_goes_to_the_even_one() -> None:
    assert digits(0.123456785) == "0.12345678"
    assert digits(1e16) == "10000000000000000.00000000"


@pytest.mark.parametrize("text", ["0.000000001", "0.05", "1.0", "10000000000000000000000.0"])
def test_a_speed_is_saved_without_an_exponent(text: str) -> None:
    assert without_exponent(float(text)) == text
