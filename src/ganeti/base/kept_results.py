"""Results of a pure function, kept from one use to the next for objects that are the same."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class KeptResults(Generic[T, R]):
    """The results of the last use; an object that is the same must not have changed. Threads may use it at once."""

    def __init__(self) -> None:
        self._last: tuple[dict[str, tuple[T, R]], object] = {}, None

    def of(
        self, objects: Mapping[str, T], make: Callable[[str, T], R], given: object = None
    ) -> dict[str, R]:
        """Return the result for each object; `make` is called for objects that are new under their names.

        `given` is whatever else the results depend on: none is kept for another object there.
        """
        last, of_last = self._last
        kept, now = last if given is of_last else {}, {}
        for name, one in objects.items():
            pair = kept.get(name)
            now[name] = pair if pair is not None and pair[0] is one else (one, make(name, one))
        self._last = now, given
        return {name: result for name, (_one, result) in now.items()}
