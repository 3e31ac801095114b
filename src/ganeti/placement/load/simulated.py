"""Empty clusters from a short description: `--simulate policy,nodes,disk,memory,processors,spindles`."""

from collections.abc import Callable, Sequence

from ganeti.base.errors import InputError
from ganeti.placement.description import Cluster, Group, Node
from ganeti.placement.load.text import DEFAULT_POLICY

_POLICIES = {"p": "preferred", "a": "last_resort", "u": "unallocable"}
FEWEST_PARTS = 5


def simulated(descriptions: Sequence[str], size: Callable[[str], float]) -> Cluster:
    """A group for each description; `size` reads a size in MiB; InputError."""
    groups, nodes = [], []
    for number, text in enumerate(descriptions, 1):
        parts = text.split(",")
        if len(parts) < FEWEST_PARTS:
            raise InputError(
                f"{text!r:.60} has {len(parts)} parts, not {FEWEST_PARTS} or 6", "simulate"
            )
        name, uuid = f"group-{number:02}", f"fake-uuid-{number:02}"
        policy = _POLICIES.get(parts[0], parts[0])
        if policy not in _POLICIES.values():
            raise InputError(f"{policy!r:.40} is not an allocation policy", "simulate")
        try:
            count, cpus = int(parts[1]), int(parts[4])
            spindles = int(parts[5]) if len(parts) > FEWEST_PARTS else 1
        except ValueError as err:
            raise InputError(str(err), "simulate") from err
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
                is_master=(number, index) == (1, 1),
            )
            for index in range(1, count + 1)
        ]
    return Cluster(groups=groups, nodes=nodes, instances=[], policy=DEFAULT_POLICY)
