"""Messages and descriptions that are broken somewhere: they are refused with the place, never with a traceback."""

import copy
import random
from typing import Any

import placement_clusters as clusters
import pytest

from ganeti.base.errors import InputError, PrereqError
from ganeti.placement.answers import answer
from ganeti.placement.load.rows import cluster_of
from ganeti.placement.load.text import format_cluster, parse
from ganeti.placement.state import State
from tests.support.generated_clusters import Kind, cluster

JUNK: tuple[Any, ...] = (None, True, -1, 0, 1.5, 1e300, "", "x", [], ["x"], {}, {"x": 1}, [[]], "drbd", 10**30)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items: list[tuple[Any, Any]] = list(value.items()) if isinstance(value, dict) else []
    items += enumerate(value) if isinstance(value, list) else []
    return found + [one for key, inner in items for one in places(inner, (*path, key))]


def broken(message: Any, path: tuple[Any, ...], junk: Any) -> Any:
    made = copy.deepcopy(message)
    *outer, last = path
    holder = made
    for key in outer:
        holder = holder[key]
    if junk is KeyError:
        del holder[last]
    else:
        holder[last] = junk
    return made


REQUESTS = [
    clusters.allocation(),
    {"type": "multi-allocate", "instances": [clusters.allocation("plain")]},
    {"type": "node-evacuate", "instances": ["inst00000"], "evac_mode": "all"},
    {"type": "change-group", "instances": ["inst00000"], "target_groups": []},
    {"type": "relocate", "name": "inst00000", "relocate_from": ["node0001"], "required_nodes": 1},
]


@pytest.mark.sampled(1)
@pytest.mark.requirement("S162", "S235")
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: one["type"])
def test_a_broken_message_is_answered(request_: dict[str, Any]) -> None:
    message = clusters.message(clusters.cluster(3), request_)
    chooser = random.Random(request_["type"])
    paths = places({key: message[key] for key in ("request", "nodegroups", "cluster_tags")})
    paths += chooser.sample(places(message), 20)
    for path in paths:
        for junk in (KeyError, *chooser.sample(JUNK, 2)):
            found = answer(broken(message, path, junk))
            assert set(found) == {"success", "info", "result"}


@pytest.mark.requirement("S235")
@pytest.mark.parametrize("key", sorted(clusters.POLICY))
def test_a_partial_policy_is_refused_with_the_key(key: str) -> None:
    message = clusters.message(clusters.cluster(3), clusters.allocation())
    found = answer(broken(message, ("nodegroups", clusters.GROUP, "ipolicy", key), KeyError))
    assert not found["success"]
    assert key in found["info"]
    assert "ipolicy" in found["info"]
    policy = {name: value for name, value in clusters.POLICY.items() if name != key}
    group = {"name": "g", "uuid": "u", "ipolicy": policy}
    with pytest.raises(InputError, match=key):
        cluster_of([group], [], [], {})


@pytest.mark.parametrize("policy", ["always", "", 1, None, ["preferred"]])
def test_an_allocation_policy_of_any_shape_is_refused(policy: Any) -> None:
    message = clusters.message(clusters.cluster(3), clusters.allocation())
    found = answer(broken(message, ("nodegroups", clusters.GROUP, "alloc_policy"), policy))
    assert not found["success"]
    assert "alloc_policy" in found["info"]


def test_a_broken_description_is_refused() -> None:
    text = format_cluster(cluster(1, Kind(groups=2)))
    chooser, refused = random.Random(1), 0
    for _ in range(400):
        lines = text.split("\n")
        number = chooser.randrange(len(lines))
        columns = lines[number].split("|")
        junk = ("", "x", "-1", "1_0", "1e5", "٣", "nan", "1e400", ",", ";")
        columns[chooser.randrange(len(columns))] = chooser.choice(junk)
        lines[number] = "|".join(columns)
        try:
            State(parse("\n".join(lines)))
        except PrereqError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("text", ["1_000", "nan", "inf", " 1", "0x10", "٣", "+1"])
def test_numbers_are_those_of_the_format(text: str) -> None:
    line = f"node|{text}|0|0|0|0|1|N|u"
    with pytest.raises(InputError, match="not a number"):
        parse(f"g|u|preferred\n\n{line}\n\n\n")


@pytest.mark.parametrize("section", [0, 3])
def test_a_line_that_is_there_twice_is_refused(section: int) -> None:
    sections = format_cluster(cluster(1, Kind())).split("\n\n")
    first = sections[section].splitlines()[-1]
    sections[section] = f"{sections[section].rstrip()}\n{first}"
    with pytest.raises(InputError, match="described twice"):
        parse("\n\n".join(sections))
