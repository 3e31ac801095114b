"""How much memory guests keep while their node has too little: the rules, for any guests and any load."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ganeti.node.memory_shares import STEP_PARTS, Share, decide, margin

ROUNDS = 200
"""More steps than any guest needs."""


@st.composite
def shares(draw: st.DrawFn) -> list[Share]:
    """Return guests whose memory is between their minimum and what they had."""
    found = []
    for number in range(draw(st.integers(0, 5))):
        least = draw(st.integers(64, 4096))
        before = least + draw(st.integers(0, 8192))
        memory = draw(st.integers(least, before))
        used = draw(st.none() | st.integers(0, before))
        found.append(Share(uuid=str(number), memory=memory, least=least, before=before, used=used))
    return found


FREE, GOAL = st.integers(0, 20_000), st.integers(0, 8192)


def settled(free: int, goal: int, guests: list[Share]) -> tuple[list[Share], int, list[int]]:
    """Let guests change until nothing changes; also return the free memory, and the directions of all steps."""
    directions = list[int]()
    for _ in range(ROUNDS):
        changes = decide(free, goal, guests)
        if not changes:
            return guests, free, directions
        changed = [replace(one, memory=changes.get(one.uuid, one.memory)) for one in guests]
        freed = sum(one.memory for one in guests) - sum(one.memory for one in changed)
        directions.append(1 if freed > 0 else -1)
        guests, free = changed, free + freed
    raise AssertionError("it never comes to rest")


@given(FREE, GOAL, shares())
def test_every_step_is_small_and_within_the_bounds(
    free: int, goal: int, guests: list[Share]
) -> None:
    for uuid, memory in decide(free, goal, guests).items():
        one = next(guest for guest in guests if guest.uuid == uuid)
        assert one.least <= memory <= one.before
        assert 0 < abs(memory - one.memory) <= one.before // STEP_PARTS
        if memory < one.memory:
            assert free < goal
            assert one.used is None or memory >= one.used
        else:
            assert free > goal


@given(FREE, GOAL, shares())
def test_no_more_is_taken_than_lacks_and_no_more_given_than_there_is(
    free: int, goal: int, guests: list[Share]
) -> None:
    changes = decide(free, goal, guests)
    grown = sum(changes[one.uuid] - one.memory for one in guests if one.uuid in changes)
    assert free - grown <= max(free, goal)
    assert grown <= 0 or free - grown >= goal + margin(goal)


@given(FREE, GOAL, shares())
def test_an_unchanged_load_comes_to_rest_in_one_direction(
    free: int, goal: int, guests: list[Share]
) -> None:
    _, _, directions = settled(free, goal, guests)
    assert len(set(directions)) <= 1


@given(FREE, GOAL, shares())
def test_without_a_goal_guests_get_everything_back(
    free: int, goal: int, guests: list[Share]
) -> None:
    lowered, _, _ = settled(free, goal, guests)
    back, _, _ = settled(1_000_000, 0, lowered)
    assert all(one.memory == one.before for one in back)


def test_guests_give_in_proportion_to_what_they_can_spare() -> None:
    guests = [
        Share(uuid="large", memory=4096, least=1024, before=4096),
        Share(uuid="small", memory=1024, least=512, before=1024),
        Share(uuid="busy", memory=2048, least=512, before=2048, used=1900),
        Share(uuid="fixed", memory=2048, least=2048, before=2048),
    ]
    assert decide(900, 1000, guests) == {"large": 4016, "small": 1004}
    assert decide(0, 4000, guests) == {"large": 3584, "small": 896}
    assert decide(1000, 1000, guests) == {}


def test_a_margin_separates_giving_from_taking() -> None:
    guests = [Share(uuid="one", memory=512, least=256, before=1024)]
    assert decide(1250, 1000, guests) == {}
    assert decide(1300, 1000, guests) == {"one": 562}
    assert decide(1300, 0, guests) == {"one": 640}
