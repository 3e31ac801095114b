"""The tables of the placement commands about a state."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ganeti.base.errors import InputError
from ganeti.placement.description import RUNNING
from ganeti.placement.digits import digits
from ganeti.placement.places import NO_NODE
from ganeti.placement.score import Component
from ganeti.placement.state import Bools, State

MIB_PER_GIB = 1024


class Column(NamedTuple):
    """A column of the node table; numbers are aligned to the right."""

    title: str
    is_number: bool
    show: Callable[[State, int], str]


def _status(state: State, node: int) -> str:
    return "-" if state.offline[node] else "*" if state.fails[node] else " "


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


COLUMNS: Mapping[str, Column] = {
    "status": Column("F", False, _status),
    "name": Column("Name", False, lambda s, n: s.alias(s.nodes[n].name)),
    "fqdn": Column("Name", False, lambda s, n: s.nodes[n].name),
    "tmem": Column("t_mem", True, lambda s, n: f"{s.total_memory[n]:.0f}"),
    "nmem": Column("n_mem", True, lambda s, n: f"{s.node_memory[n]:.0f}"),
    "imem": Column("i_mem", True, lambda s, n: f"{s.instance_memory[n]:.0f}"),
    "xmem": Column("x_mem", True, lambda s, n: f"{s.missing_memory[n]:.0f}"),
    "fmem": Column("f_mem", True, lambda s, n: f"{s.reported_free[n]:.0f}"),
    "umem": Column("u_mem", True, lambda s, n: f"{s.free[n]:.0f}"),
    "rmem": Column("r_mem", True, lambda s, n: f"{s.reserved[n]:.0f}"),
    "amem": Column("a_mem", True, lambda s, n: f"{max(0.0, s.free[n] - s.reserved[n]):.0f}"),
    "tdsk": Column("t_dsk", True, lambda s, n: f"{s.total_disk[n] / MIB_PER_GIB:.0f}"),
    "fdsk": Column("f_dsk", True, lambda s, n: f"{s.free_disk[n] // MIB_PER_GIB:.0f}"),
    "tcpu": Column("pcpu", True, lambda s, n: f"{s.total_cpus[n]:.0f}"),
    "ucpu": Column("vcpu", True, lambda s, n: f"{s.used_cpus[n]:.0f}"),
    "pcnt": Column("pcnt", True, lambda s, n: f"{s.primaries[n]:.0f}"),
    "scnt": Column("scnt", True, lambda s, n: f"{s.secondaries[n]:.0f}"),
    "pfmem": Column("p_fmem", True, lambda s, n: f"{_share(s.free[n], s.total_memory[n]):.4f}"),
    "pfdsk": Column("p_fdsk", True, lambda s, n: f"{_share(s.free_disk[n], s.total_disk[n]):.4f}"),
    "rcpu": Column("r_cpu", True, lambda s, n: f"{_share(s.used_cpus[n], s.total_cpus[n]):.2f}"),
    "cload": Column("lCpu", True, lambda s, n: f"{s.loads[0, n]:.3f}"),
    "mload": Column("lMem", True, lambda s, n: f"{s.loads[1, n]:.3f}"),
    "dload": Column("lDsk", True, lambda s, n: f"{s.loads[2, n]:.3f}"),
    "nload": Column("lNet", True, lambda s, n: f"{s.loads[3, n]:.3f}"),
    "spindle_count": Column("NodeSpindles", True, lambda s, n: f"{s.total_spindles[n]:.0f}"),
    "hi_spindles": Column("MaxSpindles", True, lambda s, n: f"{s.most_spindles[n]:g}"),
    "inst_spindles": Column("InstSpindles", True, lambda s, n: f"{s.used_spindles[n]:g}"),
}
DEFAULT_COLUMNS = (
    *("status", "name", "tmem", "nmem", "imem", "xmem", "fmem", "umem", "rmem", "tdsk", "fdsk"),
    *("tcpu", "ucpu", "pcnt", "scnt", "pfmem", "pfdsk", "rcpu", "cload", "mload", "dload", "nload"),
)


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> list[str]:
    """Return padded columns, separated by one space, under their titles."""
    return padded([titles, *rows], numeric)


def padded(rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[str]:
    """Return padded columns, separated by one space; rows may have fewer cells than `numeric`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numeric, strict=False)
        ]
        lines.append(" ".join(cells).rstrip())
    return lines


def node_table(state: State, fields: str, scope: Bools) -> list[str]:
    """Return the table of nodes in `scope`; `fields` are names with commas between, `+a,b` adds to the default."""
    wanted = [one for one in fields.removeprefix("+").split(",") if one]
    names = [*DEFAULT_COLUMNS, *wanted] if fields.startswith("+") or not wanted else wanted
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise InputError(
            f"unknown field {unknown[0]!r:.40}; known: {', '.join(COLUMNS)}", "print-nodes"
        )
    columns = [COLUMNS[name] for name in names]
    rows = [[column.show(state, int(node)) for column in columns] for node in np.flatnonzero(scope)]
    return [
        f" {line}"
        for line in table(
            [column.title for column in columns], rows, [column.is_number for column in columns]
        )
    ]


_INSTANCE_TITLES = (
    *("F", "Name", "Pri_node", "Sec_node", "Auto_bal"),
    *("vcpu", "mem", "dsk", "lCpu", "lMem", "lDsk", "lNet"),
)


def instance_table(state: State, scope: Bools) -> list[str]:
    """Return the table of instances whose primary node is in `scope`."""
    rows = []
    for index, one in enumerate(state.descriptions):
        primary, secondary = int(state.primary[index]), int(state.secondary[index])
        if not scope[primary]:
            continue
        loads = [f"{load:.3f}" for load in state.instances.loads[:, index]]
        rows.append(
            [
                *("R" if one.status in RUNNING else " ", one.name, state.nodes[primary].name),
                state.nodes[secondary].name if secondary != NO_NODE else "",
                *("Y" if one.auto_balance else "N", f"{one.vcpus:.0f}", f"{one.memory:.0f}"),
                *(f"{one.disk // MIB_PER_GIB:.0f}", *loads),
            ]
        )
    numeric = [False] * 5 + [True] * 7
    return [f" {line}" for line in table(_INSTANCE_TITLES, rows, numeric)]


def component_table(components: Sequence[Component]) -> list[str]:
    """Return the table of the score's components."""
    rows = [[one.name, digits(one.value), f"x{one.weight:.2f}"] for one in components]
    lines = table(("Field", "Value", "Weight"), rows, (False, True, True))
    return [f"   {line}" for line in lines]
