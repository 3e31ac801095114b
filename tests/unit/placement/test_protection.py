"""Where the instances of a lost node find memory."""

import random

from ganeti.placement.protection import FreeMemory, Guest, unplaced


def plainly(guests: list[Guest], free: dict[str, float], lost: str) -> list[tuple[str, str | None]]:
    """Return the node of each guest, by the rule and without an index."""
    left = {name: memory for name, memory in free.items() if name != lost}
    found: list[tuple[str, str | None]] = []
    for guest in guests:
        hosts = left if guest.hosts is None else [one for one in guest.hosts if one in left]
        best = max(hosts, key=left.__getitem__, default=None)
        if best is not None and left[best] >= guest.memory:
            left[best] -= guest.memory
        else:
            best = None
        found.append((guest.name, best))
    return found


def test_guests_are_placed_as_by_the_plain_rule() -> None:
    dice = random.Random(29)
    outcomes = set()
    for _ in range(300):
        names = [f"node{at}" for at in range(dice.randrange(1, 7))]
        free = {name: float(dice.randrange(0, 9)) for name in names}
        free_memory = FreeMemory(free)
        for lost in names:
            guests = [
                Guest(
                    f"web{at}",
                    dice.randrange(1, 6),
                    None
                    if dice.random() < 0.7
                    else tuple(dice.sample(names, dice.randrange(0, 2))),
                )
                for at in range(8)
            ]
            room = free_memory.without(lost)
            out = [guest.name for guest, _why in unplaced(guests, room)]
            expected = plainly(guests, free, lost)
            assert out == [name for name, node in expected if node is None]
            spent = dict.fromkeys(names, 0.0)
            for guest, (_name, node) in zip(guests, expected, strict=True):
                if node is not None:
                    spent[node] += guest.memory
            assert all(room.of(name) == free[name] - spent[name] for name in names if name in room)
            outcomes.add(len(out))
    assert outcomes >= {0, 8}
