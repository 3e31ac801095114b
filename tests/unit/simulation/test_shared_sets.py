"""Sets of ssconf files that simulated nodes share."""

from ganeti.simulation.nodes.world import SharedSets


def test_nodes_that_differed_once_share_their_next_set() -> None:
    sets, made = SharedSets(), list[str]()

    def make(who: str) -> dict[str, str]:
        made.append(who)
        return {"node_list": "a"}

    two = ({"node_list": ""}, {"node_list": ""})
    first, second = (sets.of((1, 2, "sum of a"), former, lambda: make("one")) for former in two)
    assert first is second
    assert len(made) == 2
    assert sets.of((1, 2, "sum of a"), two[1], lambda: make("again")) is second
    other = sets.of((2, 3, "sum of b"), first, lambda: {"node_list": "b"})
    assert other == {"node_list": "b"}
