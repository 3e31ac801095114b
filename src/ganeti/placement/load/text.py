"""The text form of a cluster, the format of the files of `-t FILE` and `-S FILE`.

Sections are separated by empty lines: groups, nodes, instances, cluster tags (a line each), instance policies.
Columns are separated by `|`; later columns may be missing. A `?` among a node's numbers makes it offline.
As in upstream Ganeti a name may occur twice among nodes or instances; an instance is on the last node of its name.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.disk_templates import TEMPLATES
from ganeti.model.params import UPSTREAM_IPOLICY
from ganeti.placement.description import Cluster, Group, Instance, Node, Policy, facts
from ganeti.placement.digits import all_digits, without_exponent
from ganeti.placement.policy_form import checked_policy

SPEC_KEYS = ("memory-size", "cpu-count", "disk-size", "disk-count", "nic-count", "spindle-use")
SECTIONS = 5
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", re.ASCII)
DEFAULT_POLICY: Policy = {**UPSTREAM_IPOLICY, "disk-templates": list(TEMPLATES)}
"""The policy of a description without one, as in upstream's tools."""


def parse(text: str) -> Cluster:
    """Return a cluster from its text; InputError names the wrong line."""
    groups, nodes, instances, tags, policies = _sections(text)
    found = _policies(policies)
    cluster_policy = found.get("", DEFAULT_POLICY)
    made = [_group(line, found, cluster_policy) for line in groups]
    _refuse_twins("group", [one.name for one in made])
    _refuse_twins("group", [one.uuid for one in made])
    return Cluster(
        groups=made,
        nodes=[_node(line) for line in nodes],
        instances=[_instance(line) for line in instances],
        tags=[line.strip() for line in tags],
        policy=cluster_policy,
    )


def _refuse_twins(what: str, names: Sequence[str]) -> None:
    if twins := repeated(names):
        raise InputError(f"{what} {twins[0]} is described twice", "text")


def repeated(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once, each once, in order."""
    return [name for name, number in Counter(names).items() if number > 1]


def _sections(text: str) -> list[list[str]]:
    sections: list[list[str]] = [[]]
    for line in text.splitlines():
        if line:
            sections[-1].append(line)
        else:
            sections.append([])
    sections = sections[:SECTIONS]
    if len(sections) < 3:  # noqa: PLR2004 - groups, nodes, instances
        raise InputError(
            f"Invalid format of the input file: {len(sections)} sections instead of 3 or more"
            " (groups, nodes, instances)"
        )
    return sections + [[] for _ in range(SECTIONS - len(sections))]


def _columns(line: str, fewest: int, what: str) -> list[str]:
    columns = line.split("|")
    if len(columns) < fewest:
        raise InputError(
            f"{what} line {line!r:.80} has {len(columns)} columns, not {fewest}", "text"
        )
    return columns


def _get(columns: Sequence[str], index: int, default: str = "") -> str:
    return columns[index] if index < len(columns) and columns[index] else default


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _number(text: str, what: str, kind: Callable[[str], float] = float) -> float:
    value = float("nan")
    if _NUMBER.fullmatch(text):
        with contextlib.suppress(ValueError):
            value = kind(text)
    if not abs(value) < 1e15:  # noqa: PLR2004 - beyond that, floats are no longer exact
        raise InputError(f"{text!r:.40} is not a number", what)
    return value


def _group(line: str, policies: Mapping[str, Policy], default: Policy) -> Group:
    columns = _columns(line, 3, "group")
    name, uuid, policy = columns[:3]
    if policy not in ("preferred", "last_resort", "unallocable"):
        raise InputError(f"{policy!r:.40} is not an allocation policy", f"group {name}")
    return Group(
        name=name,
        uuid=uuid,
        alloc_policy=policy,
        tags=_list(_get(columns, 3)),
        networks=_list(_get(columns, 4)),
        policy=policies.get(name, default),
    )


def _node(line: str) -> Node:
    columns = _columns(line, 9, "node")
    name, numbers, role = columns[0], columns[1:7], columns[7]
    what = f"node {name}"
    is_unknown = "?" in numbers
    total, own, free, disk, free_disk, cpus = (
        (0.0,) * 6 if is_unknown else (_number(one, what) for one in numbers)
    )
    return Node(
        name=name,
        group=columns[8],
        total_memory=total,
        node_memory=own,
        free_memory=free,
        total_disk=disk,
        free_disk=free_disk,
        total_cpus=cpus,
        node_cpus=_number(_get(columns, 13, "1"), what),
        offline=is_unknown or role == "Y",
        is_master=role == "M",
        total_spindles=_number(_get(columns, 9, "1"), what),
        free_spindles=_number(_get(columns, 12, "0"), what),
        exclusive_storage=_get(columns, 11, "N") == "Y",
        tags=_list(_get(columns, 10)),
        cpu_speed=_number(_get(columns, 14, "1"), what),
    )


def _instance(line: str) -> Instance:
    columns = _columns(line, 9, "instance")
    name, memory, disk, vcpus, status, balance, primary, secondary, template = columns[:9]
    what = f"instance {name}"
    if balance not in ("Y", "N"):
        raise InputError(f"auto_balance is {balance!r:.10}, not Y or N", what)
    facts(template)
    spindles = _get(columns, 11, "-")
    size = _number(disk, what)
    return Instance(
        name=name,
        memory=_number(memory, what),
        disk=size,
        vcpus=_number(vcpus, what),
        status=status,
        auto_balance=balance == "Y",
        primary=primary,
        secondary=secondary,
        template=template,
        tags=_list(_get(columns, 9)),
        spindle_use=_number(_get(columns, 10, "1"), what),
        spindles=None if spindles == "-" else _number(spindles, what),
        disks=(size,),
    )


def _policies(lines: Sequence[str]) -> dict[str, Policy]:
    found: dict[str, Policy] = {}
    for line in lines:
        owner, std, minmax, templates, vcpu_ratio, spindle_ratio = _columns(line, 6, "policy")[:6]
        what = f"policy of {owner or 'the cluster'}"
        if owner in found:
            raise InputError("is described twice", what)
        bounds = [_spec(one, what) for one in minmax.split(";")]
        if len(bounds) % 2:
            raise InputError("a minimum has no maximum", what)
        policy = {
            "std": _spec(std, what),
            "minmax": [
                {"min": low, "max": high}
                for low, high in zip(bounds[::2], bounds[1::2], strict=True)
            ],
            "disk-templates": list(_list(templates)),
            "vcpu-ratio": _number(vcpu_ratio, what),
            "spindle-ratio": _number(spindle_ratio, what),
        }
        found[owner] = checked_policy(policy, what)
    return found


def _spec(text: str, what: str) -> dict[str, int]:
    values = [int(_number(one, what, int)) for one in text.split(",")]
    if len(values) != len(SPEC_KEYS):
        raise InputError(f"{text!r:.60} has {len(values)} numbers, not {len(SPEC_KEYS)}", what)
    return dict(zip(SPEC_KEYS, values, strict=True))


def format_cluster(cluster: Cluster) -> str:
    """Return the text of a cluster; `parse` reads it back."""
    sections = [
        [_group_line(one) for one in cluster.groups],
        [_node_line(one) for one in cluster.nodes],
        [_instance_line(one) for one in cluster.instances],
        list(cluster.tags),
        [
            _policy_line("", cluster.policy),
            *(_policy_line(one.name, one.policy) for one in cluster.groups),
        ],
    ]
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in sections)


def _whole(value: float) -> str:
    return str(int(value))


def _group_line(group: Group) -> str:
    return "|".join(
        [group.name, group.uuid, group.alloc_policy, ",".join(group.tags), ",".join(group.networks)]
    )


def _node_line(node: Node) -> str:
    role = "Y" if node.offline else "M" if node.is_master else "N"
    sizes = (
        *(node.total_memory, node.node_memory, node.free_memory),
        *(node.total_disk, node.free_disk, node.total_cpus),
    )
    return "|".join(
        [
            *(node.name, *map(_whole, sizes), role, node.group, _whole(node.total_spindles)),
            *(",".join(node.tags), "Y" if node.exclusive_storage else "N"),
            *(_whole(node.free_spindles), _whole(node.node_cpus), without_exponent(node.cpu_speed)),
        ]
    )


def _instance_line(one: Instance) -> str:
    spindles = "-" if one.spindles is None else _whole(one.spindles)
    return "|".join(
        [
            *(one.name, _whole(one.memory), _whole(one.disk), _whole(one.vcpus), one.status),
            *("Y" if one.auto_balance else "N", one.primary, one.secondary, one.template),
            *(",".join(one.tags), _whole(one.spindle_use), spindles, "N"),
        ]
    )


def _policy_line(owner: str, policy: Policy) -> str:
    def spec(values: Mapping[str, Any]) -> str:
        return ",".join(str(values.get(key, 0)) for key in SPEC_KEYS)

    bounds = ";".join(f"{spec(one['min'])};{spec(one['max'])}" for one in policy["minmax"])
    return "|".join(
        [
            *(owner, spec(policy["std"]), bounds, ",".join(policy["disk-templates"])),
            *(all_digits(policy["vcpu-ratio"]), all_digits(policy["spindle-ratio"])),
        ]
    )
