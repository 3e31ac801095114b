"""Job ids in blocks: the ceiling of a block is registered before any of its ids is used (R12, G8)."""

from ganeti.base.errors import StoreError

BLOCK_SIZE = 1000


class JobIdAllocator:
    """Assigns the next ids, and requests a new ceiling when needed. Pure.

    After each campaign a new allocator starts above the ceiling (`Membership.job_id_ceiling`):
    another master may have given out any id below it.
    """

    def __init__(
        self, ceiling: int, next_id: int | None = None, *, block_size: int = BLOCK_SIZE
    ) -> None:
        self._ceiling = ceiling
        self._next = ceiling + 1 if next_id is None else next_id
        self._block_size = block_size
        self.validate()

    @property
    def ceiling(self) -> int:
        return self._ceiling

    @property
    def greatest(self) -> int:
        """Return the greatest id that was or may have been given out."""
        return self._next - 1

    def validate(self) -> None:
        """Raise StoreError if an id above the ceiling could have been given out."""
        if not 1 <= self._next <= self._ceiling + 1:
            raise StoreError(f"next job id {self._next} with a ceiling of {self._ceiling}")

    def ceiling_for(self, count: int) -> int | None:
        """Return the ceiling to register before `count` ids are taken; None if it suffices."""
        missing = self._next + count - 1 - self._ceiling
        if missing <= 0:
            return None
        blocks = -(-missing // self._block_size)
        return self._ceiling + blocks * self._block_size

    def raised(self, ceiling: int) -> None:
        """Record that the ceiling is registered and written."""
        self._ceiling = max(self._ceiling, ceiling)

    def take(self, count: int = 1) -> range:
        """Return the next ids, in order; StoreError if they are not below the ceiling."""
        if self.ceiling_for(count) is not None:
            raise StoreError(f"{count} job ids from {self._next} would pass {self._ceiling}")
        taken = range(self._next, self._next + count)
        self._next += count
        return taken
