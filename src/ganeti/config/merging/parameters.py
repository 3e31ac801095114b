"""Parameters that differ between two clusters: found where they affect an object, and decided.

A layer of parameters matters by the resulting values. So each object of the other cluster is filled
with its own cluster's layers and with the local ones. Where these differ, the object keeps its
former value or gets the local one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ganeti.config.fill import (
    all_diskparams,
    filled_beparams,
    filled_hvparams,
    filled_ipolicy,
    filled_ndparams,
    filled_nicparams,
    filled_osparams,
    group_of,
    layered_beparams,
)
from ganeti.config.merging.findings import Findings, some
from ganeti.config.merging.places import Groups, Networks
from ganeti.config.merging.plan import Part
from ganeti.config.view import View
from ganeti.model.cluster_params import CLUSTER_PARAMS
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.model.objects import Cluster, Instance, Nic, Node, NodeGroup
from ganeti.model.params import NODE_DEFAULTS, Params, layered
from ganeti.model.stored import Stored

S = TypeVar("S", bound=Stored)

_ABSENT = "(none)"
_COMPARED_IN_USE = frozenset(
    (
        *("hvparams", "os_hvp", "osparams", "beparams", "nicparams"),
        *("ndparams", "diskparams", "ipolicy"),
        *("enabled_hypervisors", "enabled_disk_templates", "hidden_os", "blacklisted_os"),
    )
)
"""Parameters that are compared per object; for the others the local value applies, with a note."""
_SHOWN = 100

Difference = dict[str, tuple[Any, Any]]
"""Name -> the other cluster's value and the local one."""


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Difference:
    """Return the differing values of two dictionaries."""
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    return {name: (theirs.get(name, _ABSENT), ours.get(name, _ABSENT)) for name in names}


class _Collected:
    """The differences of many objects, reported once for each parameter.

    And the values that each object keeps.
    """

    def __init__(self, part: Part, findings: Findings) -> None:
        self._part, self._findings = part, findings
        self._found: dict[tuple[str, str, str], list[str]] = {}
        self._why_not: dict[tuple[str, str, str], str] = {}

    def add(self, who: str, found: Difference, why_not: Mapping[str, str]) -> None:
        for name, (theirs, ours) in found.items():
            key = (name, str(theirs)[:_SHOWN], str(ours)[:_SHOWN])
            self._found.setdefault(key, []).append(who)
            if theirs is _ABSENT:
                self._why_not[key] = "a parameter that the cluster sets cannot be unset"
            elif why_not[name]:
                self._why_not[key] = why_not[name]

    def kept(self) -> frozenset[str]:
        """Return the names of the values that objects keep; each difference is recorded."""
        names = set()
        for key, whose in sorted(self._found.items()):
            name, theirs, ours = key
            text = f"{self._part}: {name} is {theirs} there and {ours} here, for {some(whose)}"
            how = "these objects get it as their own"
            if self._findings.differs(
                self._part, text, keep=how, why_not=self._why_not.get(key, "")
            ):
                names.add(name)
        return frozenset(names)


def _with_kept(
    things: Iterable[S],
    part: Part,
    findings: Findings,
    difference: Callable[[S], Difference],
    keep: Callable[[S, Params], S],
    *,
    why_not: Callable[[S, str], str] = lambda _thing, _name: "",
) -> list[S]:
    """Return the objects with the values that they keep."""
    found = [(thing, difference(thing)) for thing in things]
    collected = _Collected(part, findings)
    for thing, one in found:
        collected.add(thing.name, one, {name: why_not(thing, name) for name in one})
    kept = collected.kept()
    merged = []
    for thing, one in found:
        values = {name: value for name, (value, _) in one.items() if name in kept}
        merged.append(keep(thing, values) if values else thing)
    return merged


def merged_cluster(ours: View, theirs: View, findings: Findings) -> Cluster:
    """Return the local cluster with the values that it adopts from the other one."""
    mine, other = ours.cluster, theirs.cluster
    used = {
        "enabled_hypervisors": {one.hypervisor for one in theirs.instances.values()},
        "enabled_disk_templates": {one.disk_template for one in theirs.instances.values()},
    }
    changes: dict[str, Any] = {}
    for name, words in used.items():
        missing = sorted(words - set(getattr(mine, name)))
        text = f"{name}: instances there use {some(missing)}, disabled in the local cluster"
        if missing and findings.differs(Part.ENABLED, text, keep="it is enabled"):
            changes[name] = (*getattr(mine, name), *missing)
    unions = {Part.TAGS: ("tags",), Part.OS_LISTS: ("hidden_os", "blacklisted_os")}
    for part, names in unions.items():
        for name in names:
            more = sorted(set(getattr(other, name)) - set(getattr(mine, name)))
            text = f"{name} of the cluster: {some(more)} there and not here"
            if more and findings.differs(part, text, keep="taken over"):
                changes[name] = tuple(sorted({*getattr(mine, name), *more}))
    for name, param in CLUSTER_PARAMS.items():
        here, there = (param.with_defaults(getattr(one, name)) for one in (mine, other))
        if name not in _COMPARED_IN_USE and here != there:
            findings.note(f"{name} was {_text(there)} in its own cluster and becomes {_text(here)}")
    return replace(mine, **changes)


def _text(value: Any) -> str:
    return str(value)[:_SHOWN] or "(nothing)"


def kept_groups(theirs: View, cluster: Cluster, groups: Groups, findings: Findings) -> Groups:
    """Return the merged groups by UUID, with the values that they keep of their cluster's parameters."""
    new = {uuid: group for uuid, group in groups.items() if group.uuid == uuid}
    joined = "its nodes join a local group"

    def why_not(group: NodeGroup, _name: str) -> str:
        return "" if group.uuid in new else joined

    def disks(group: NodeGroup) -> Difference:
        after = all_diskparams(cluster, groups[group.uuid])
        found: Difference = {}
        for template, params in all_diskparams(theirs.cluster, group).items():
            one = differences(params, after[template])
            found.update({f"{template}:{name}": pair for name, pair in one.items()})
        return found

    def policy(group: NodeGroup) -> Difference:
        return differences(
            filled_ipolicy(theirs.cluster, group), filled_ipolicy(cluster, groups[group.uuid])
        )

    def keep_disks(group: NodeGroup, values: Params) -> NodeGroup:
        diskparams = {template: dict(params) for template, params in group.diskparams.items()}
        for name, value in values.items():
            template, _, parameter = name.partition(":")
            diskparams.setdefault(template, {})[parameter] = value
        return replace(group, diskparams=diskparams)

    def keep_policy(group: NodeGroup, values: Params) -> NodeGroup:
        return replace(group, ipolicy={**group.ipolicy, **values})

    given = sorted(theirs.groups.values(), key=lambda one: one.name)
    given = _with_kept(given, Part.DISKPARAMS, findings, disks, keep_disks, why_not=why_not)
    given = _with_kept(given, Part.IPOLICY, findings, policy, keep_policy, why_not=why_not)
    kept = {group.uuid: group for group in given}
    after = {
        uuid: replace(group, diskparams=kept[uuid].diskparams, ipolicy=kept[uuid].ipolicy)
        for uuid, group in new.items()
    }
    return {**groups, **after}


def kept_connections(
    theirs: View, cluster: Cluster, networks: Networks, findings: Findings
) -> list[NodeGroup]:
    """Return the other cluster's groups in order, connected to the merged networks."""
    before = theirs.cluster
    groups = []
    for group in sorted(theirs.groups.values(), key=lambda one: one.name):
        for gone in group.networks.keys() - networks.keys():
            findings.error(
                f"group {group.name} is connected to {gone}, which is not a network of that cluster"
            )
        known = {networks[u].uuid: how for u, how in group.networks.items() if u in networks}
        groups.append(replace(group, networks=known))

    def connections(group: NodeGroup) -> Difference:
        found: Difference = {}
        for uuid in group.networks:
            nic = Nic(uuid="", mac="", network=uuid)
            one = differences(
                filled_nicparams(before, nic, group), filled_nicparams(cluster, nic, group)
            )
            found.update({f"{uuid}:{name}": pair for name, pair in one.items()})
        return found

    def keep(group: NodeGroup, values: Params) -> NodeGroup:
        networks = {uuid: dict(params) for uuid, params in group.networks.items()}
        for name, value in values.items():
            for uuid, params in networks.items():
                if name.startswith(f"{uuid}:"):
                    params[name.removeprefix(f"{uuid}:")] = value
        return replace(group, networks=networks)

    return _with_kept(groups, Part.NICPARAMS, findings, connections, keep)


def kept_nodes(theirs: View, cluster: Cluster, groups: Groups, findings: Findings) -> list[Node]:
    """Return the other cluster's nodes with the parameter values that they keep."""

    def found(node: Node) -> Difference:
        group = groups.get(node.group)
        after = layered(
            NODE_DEFAULTS, cluster.ndparams, group.ndparams if group else {}, node.ndparams
        )
        return differences(filled_ndparams(theirs, node), after)

    def keep(node: Node, values: Params) -> Node:
        return replace(node, ndparams={**node.ndparams, **values})

    return _with_kept(theirs.nodes_by_name(), Part.NDPARAMS, findings, found, keep)


def kept_instances(
    theirs: View, cluster: Cluster, groups: Groups, findings: Findings
) -> list[Instance]:
    """Return the other cluster's instances with the parameter values that they keep."""
    before = theirs.cluster

    def hypervisor(one: Instance) -> Difference:
        return differences(filled_hvparams(before, one), filled_hvparams(cluster, one))

    def is_global(one: Instance, name: str) -> str:
        param = HYPERVISOR_PARAMS.get(one.hypervisor, {}).get(name)
        return "it applies to all instances of a cluster" if param and param.is_global else ""

    def backend(one: Instance) -> Difference:
        return differences(
            filled_beparams(theirs, one), _beparams_after(theirs, cluster, groups, one)
        )

    def of_os(one: Instance) -> Difference:
        return differences(filled_osparams(before, one), filled_osparams(cluster, one))

    def nics(one: Instance) -> Difference:
        found: Difference = {}
        for nic in one.nics:
            if not nic.network:
                found.update(
                    differences(filled_nicparams(before, nic), filled_nicparams(cluster, nic))
                )
        return found

    def keep_nics(one: Instance, values: Params) -> Instance:
        kept = tuple(nic if nic.network else _kept_nic(before, nic, values) for nic in one.nics)
        return replace(one, nics=kept)

    def keep(field: str) -> Callable[[Instance, Params], Instance]:
        return lambda one, values: msgspec.structs.replace(
            one, **{field: {**getattr(one, field), **values}}
        )

    given = sorted(theirs.instances.values(), key=lambda one: one.name)
    given = _with_kept(
        given, Part.HVPARAMS, findings, hypervisor, keep("hvparams"), why_not=is_global
    )
    given = _with_kept(given, Part.BEPARAMS, findings, backend, keep("beparams"))
    given = _with_kept(given, Part.OSPARAMS, findings, of_os, keep("osparams"))
    return _with_kept(given, Part.NICPARAMS, findings, nics, keep_nics)


def _beparams_after(theirs: View, cluster: Cluster, groups: Groups, one: Instance) -> Params:
    group = group_of(theirs, one.primary_node)
    return layered_beparams(cluster, groups.get(group.uuid) if group else None, one)


def _kept_nic(before: Cluster, nic: Nic, names: Params) -> Nic:
    filled = filled_nicparams(before, nic)
    return replace(nic, nicparams={**nic.nicparams, **{name: filled[name] for name in names}})
