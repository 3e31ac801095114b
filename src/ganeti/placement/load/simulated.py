"""Empty clusters from short descriptions: `--simulate policy,nodes,disk,memory,processors,spindles,exclusive`."""

from collections.abc import Callable, Sequence

from ganeti.base.errors import InputError
from ganeti.placement.description import Cluster, Group, Node
from ganeti.placement.load.text import DEFAULT_POLICY

_POLICIES = {"p": "preferred", "a": "last_resort", "u": "unallocable"}
_PARTS = (
    *("allocation policy", "number of nodes", "disk", "memory", "processors"),
    *("spindles", "exclusive storage (True or False)"),
)
FEWEST_PARTS = 5
MOST_DIGITS = 9


def simulated(descriptions: Sequence[str], size: Callable[[str], float]) -> Cluster:
    """Return a group for each description, the last one first as in upstream Ganeti; `size` reads MiB; InputError."""
    groups, nodes = [], []
    for number, text in enumerate(reversed(descriptions), 1):
        parts = text.split(",")
        if not FEWEST_PARTS <= len(parts) <= len(_PARTS):
            raise InputError(
                f"{text!r:.60} has {len(parts)} parts instead of {FEWEST_PARTS} to {len(_PARTS)}:"
                f" {', '.join(_PARTS)}",
                "simulate",
            )
        name, uuid = f"group-{number:02}", f"fake-uuid-{number:02}"
        policy = _POLICIES.get(parts[0], parts[0])
        if policy not in _POLICIES.values():
            raise InputError(f"{policy!r:.40} is not an allocation policy", "simulate")
        count, cpus, spindles = (_count([*parts, "1"], place) for place in (1, 4, 5))
        exclusive = parts[6] if len(parts) == len(_PARTS) else "False"
        if exclusive not in ("True", "False"):
            raise InputError(f"{_PARTS[6]} is {exclusive!r:.40}, not True or False", "simulate")
        disk, memory = size(parts[2]), size(parts[3])
        groups.append(Group(name, uuid, policy, policy=DEFAULT_POLICY))
        nodes += [
            Node(
                name=f"node-{number:02}-{index:03}",
                group=uuid,
                total_memory=memory,
                free_memory=memory,
                total_disk=disk,
                free_disk=disk,
                total_cpus=cpus,
                total_spindles=spindles,
                exclusive_storage=exclusive == "True",
                is_master=(number, index) == (1, 1),
            )
            for index in range(1, count + 1)
        ]
    return Cluster(groups=groups, nodes=nodes, instances=[], policy=DEFAULT_POLICY)


def _count(parts: Sequence[str], place: int) -> int:
    text = parts[place]
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise InputError(f"{_PARTS[place]} is {text!r:.40}, which is not a number", "simulate")
    return int(text)
