"""Results of a pure function, kept from one use to the next for objects that are the same."""

import operator
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class KeptResults(Generic[T, R]):
    """The results of the last use; an object that is the same must not have changed. Threads may use it at once."""

    def __init__(self) -> None:
        self._last: tuple[dict[str, tuple[T, R]], tuple[object, ...]] = {}, ()

    def of(
        self, objects: Mapping[str, T], make: Callable[[str, T], R], *given: object
    ) -> dict[str, R]:
        """Return the result for each object; `make` is called for objects that are new under their names.

        `given` are the other objects that the results depend on: none is kept if one of them is another.
        """
        last, of_last = self._last
        is_same = len(given) == len(of_last) and all(map(operator.is_, given, of_last))
        kept, now = last if is_same else {}, {}
        for name, one in objects.items():
            pair = kept.get(name)
            now[name] = pair if pair is not None and pair[0] is one else (one, make(name, one))
        self._last = now, given
        return {name: result for name, (_one, result) in now.items()}
