"""Versions of a large matrix that differ in few elements, without a copy for each (Baker's persistent arrays)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Position = tuple[int, int]


class _Difference(NamedTuple):
    """A version whose matrix is that of `other` with `value` at `position`."""

    other: "Version"
    position: Position
    value: float


class Version:
    """One version. The one that was read or changed last holds the matrix; each other one holds a difference.

    Reading the same version again costs nothing; reading another one costs the number of changes between both.
    """

    __slots__ = ("_held",)

    def __init__(self, matrix: Floats) -> None:
        self._held: Floats | _Difference = matrix

    def read(self) -> Floats:
        """Return the matrix, which is valid until another version is read or made."""
        version, path = self, list[tuple[Version, _Difference]]()
        while isinstance(held := version._held, _Difference):
            path.append((version, held))
            version = held.other
        for target, difference in reversed(path):
            version._pass_to(target, held, *difference[1:])  # noqa: SLF001 - one module
            version = target
        return held

    def changed(self, position: Position, value: float) -> "Version":
        """Return a version that differs from this one in one element."""
        matrix = self.read()
        other = Version(matrix)
        self._pass_to(other, matrix, position, value)
        return other

    def _pass_to(self, other: "Version", matrix: Floats, position: Position, value: float) -> None:
        """Let `other`, which has `value` at `position`, hold the matrix of this version."""
        self._held = _Difference(other, position, float(matrix[position]))
        matrix[position] = value
        other._held = matrix  # noqa: SLF001 - one module
