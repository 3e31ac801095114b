"""Each version of a matrix keeps its own elements, whichever was read or changed last."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ganeti.placement.versions import Version

position = st.tuples(st.integers(0, 2), st.integers(0, 2))
changes = st.tuples(st.integers(0, 99), position, st.floats(-9, 9))


@given(st.lists(changes, max_size=30), st.lists(st.integers(0, 99), max_size=30))
def test_each_version_keeps_its_own_elements(
    made: list[tuple[int, tuple[int, int], float]], read: list[int]
) -> None:
    versions, copies = [Version(np.zeros((3, 3)))], [np.zeros((3, 3))]
    for base, where, value in made:
        number = base % len(versions)
        versions.append(versions[number].changed(where, value))
        copies.append(copies[number].copy())
        copies[-1][where] = value
    for number in (*(one % len(versions) for one in read), *range(len(versions))):
        assert np.array_equal(versions[number].read(), copies[number])
