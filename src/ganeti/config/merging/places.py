"""Groups and networks: whether each stays unchanged, merges with a local one, or gets another name."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_network

from msgspec.structs import replace

from ganeti.config.fill import filled_nicparams
from ganeti.config.merging.findings import Findings, some
from ganeti.config.merging.plan import SameName
from ganeti.config.view import View
from ganeti.model.address_pool import AddressPool, ranges_of
from ganeti.model.objects import Cluster, GroupUuid, Network, NetworkUuid, Nic, NodeGroup

Networks = dict[NetworkUuid, Network]
"""UUID in the other cluster -> the merged network, which may be a local one."""
Groups = dict[GroupUuid, NodeGroup]


def merged_networks(ours: View, theirs: View, findings: Findings) -> Networks:
    """Return the result for each network of the other cluster."""
    merged: Networks = {}
    options, by_name = findings.options, {one.name: one for one in ours.networks.values()}
    for network in sorted(theirs.networks.values(), key=lambda one: one.name):
        chosen = options.network_names, options.networks
        wanted, is_same = _wanted("network", network.name, by_name, chosen, findings)
        if is_same:
            merged[network.uuid] = by_name[wanted] = _one_network(
                by_name[wanted], network, findings
            )
            continue
        _check_ranges(by_name, network, findings)
        merged[network.uuid] = by_name[wanted] = replace(network, name=wanted)
    return {uuid: by_name[network.name] for uuid, network in merged.items()}


def _one_network(ours: Network, theirs: Network, findings: Findings) -> Network:
    """The local network with the external reservations of the other one added."""
    for name in ("network", "gateway", "network6", "gateway6", "mac_prefix"):
        here, there = getattr(ours, name), getattr(theirs, name)
        if here != there:
            findings.error(
                f"network {theirs.name} cannot merge with the local one: its {name} is {there}, the local"
                f" {here}; give it another name (--network {theirs.name}=NAME)"
            )
            return ours
    pool = AddressPool(ours)
    numbers = {
        number
        for first, last in (*ours.external, *theirs.external)
        for number in range(first, last + 1)
        if number < pool.size
    }
    findings.decision(f"network {theirs.name} merges with the local one")
    _say_lost_tags("network", theirs.name, theirs.tags, ours.tags, findings)
    return replace(ours, external=ranges_of(numbers))


def _check_ranges(ours: Mapping[str, Network], network: Network, findings: Findings) -> None:
    for other in ours.values():
        pairs = ((network.network, other.network), (network.network6, other.network6))
        for mine, its in pairs:
            if not mine or not its:
                continue
            one, two = ip_network(mine), ip_network(its)
            if one.version != two.version or not one.overlaps(two):
                continue
            text = f"network {network.name} has {mine}, which overlaps {its} of our {other.name}"
            if findings.options.networks is SameName.STRICT:
                findings.error(
                    f"{text}: merge the two (--network {network.name}={other.name}), or declare "
                    "them separate (--networks=rename)"
                )
            else:
                findings.note(text)


def merged_groups(
    ours: View, theirs: Iterable[NodeGroup], cluster: Cluster, findings: Findings
) -> Groups:
    """Return the merged groups with their connections; `cluster` is the merged cluster."""
    merged: Groups = {}
    options, by_name = findings.options, {one.name: one for one in ours.groups.values()}
    for group in theirs:
        chosen = options.group_names, options.groups
        wanted, is_same = _wanted("group", group.name, by_name, chosen, findings)
        if is_same:
            merged[group.uuid] = by_name[wanted] = _one_group(
                by_name[wanted], group, cluster, findings
            )
        else:
            merged[group.uuid] = by_name[wanted] = replace(group, name=wanted)
    return {uuid: by_name[group.name] for uuid, group in merged.items()}


def _one_group(
    ours: NodeGroup, theirs: NodeGroup, cluster: Cluster, findings: Findings
) -> NodeGroup:
    """Return the local group, also connected to the networks of the other one."""
    findings.decision(f"the nodes of group {theirs.name} join the local group {ours.name}")
    if ours.alloc_policy != theirs.alloc_policy:
        findings.note(
            f"group {theirs.name} had the allocation policy {theirs.alloc_policy}, {ours.name} has"
            f" {ours.alloc_policy}"
        )
    _say_lost_tags("group", theirs.name, theirs.tags, ours.tags, findings)
    for uuid in ours.networks.keys() & theirs.networks.keys():
        nic = Nic(uuid="", mac="", network=uuid)
        here, there = (filled_nicparams(cluster, nic, group) for group in (ours, theirs))
        if here != there:
            findings.error(
                f"group {theirs.name} is connected to the network {uuid} as {_shown(there)}, the local group"
                f" {ours.name} as {_shown(here)}: keep the group (--group {theirs.name}=NAME)"
            )
    return replace(ours, networks={**theirs.networks, **ours.networks})


def _wanted(
    what: str,
    name: str,
    taken: Mapping[str, object],
    chosen: tuple[Mapping[str, str], SameName],
    findings: Findings,
) -> tuple[str, bool]:
    """Return the new name, and whether the object merges with the local one of that name."""
    given, same = chosen
    asked = given.get(f"{findings.cluster}/{name}", given.get(name))
    if asked is not None:
        if asked not in taken and asked != name:
            findings.decision(f"{what} {name} is called {asked}")
        return asked, asked in taken
    if name not in taken:
        return name, False
    if same is SameName.MERGE:
        return name, True
    renamed = _free_name(name, findings.cluster, taken)
    if same is SameName.RENAME and renamed is not None:
        findings.decision(f"{what} {name} is called {renamed}, because {name} exists here")
        return renamed, False
    findings.error(
        f"{what} {name}: this name exists here; merge the two (--{what}s=merge), or choose "
        f"another name (--{what}s=rename, --{what} {name}=NAME)"
    )
    # With a free name instead, the plan finds no further errors that follow from this one.
    return renamed or name, False


def _free_name(name: str, cluster: str, taken: Mapping[str, object]) -> str | None:
    """Return the name with as many labels of its cluster's name as make it unique; None if none do."""
    labels = cluster.split(".")
    longer = (f"{name}-{'.'.join(labels[:number])}" for number in range(1, len(labels) + 1))
    return next((one for one in longer if one not in taken), None)


def _say_lost_tags(
    what: str, name: str, theirs: tuple[str, ...], ours: tuple[str, ...], findings: Findings
) -> None:
    lost = set(theirs) - set(ours)
    if lost:
        findings.note(f"{what} {name}: its tags {some(lost)} are lost")


def _shown(params: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(params.items()))
