"""Sources of a cluster for the placement commands: a file, the master, RAPI, a request, a description."""

import argparse
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import say
from ganeti.cli.input_file import read_input

if (
    TYPE_CHECKING
):  # A command imports only what it uses: imports of networks and numpy take most of its time.
    from pathlib import Path

    from ganeti.clients.luxi import LuxiClient
    from ganeti.placement.description import Cluster
    from ganeti.placement.state import State

RAPI_PORT = 5080
FILES = "file://"
"""Prefix of a directory with answers of a RAPI server."""
RAPI_TIMEOUT_S = 60.0
LOAD_COLUMNS = 5
_BAD_LOADS = "can't parse utilisation data"
MIB = 1024 * 1024
MISSING_MEMORY_MIB, MISSING_DISK_MIB = 512, 1024


def load(args: argparse.Namespace) -> "Cluster":
    """Return the cluster of the only backend option; PrereqError for none or several."""
    given = [name for name in _BACKENDS if getattr(args, name, None) is not None]
    if len(given) > 1:
        raise InputError("Only one of the rapi, luxi, and data files options should be given.")
    try:
        if not given:
            raise InputError("No backend selected: pass one of -t, -L, -m, -I or --simulate")
        cluster = cluster_of(given[0], getattr(args, given[0]))
    except PrereqError as err:
        raise PrereqError(f"failed to load data, aborting: {err.message}", err.code) from err
    return _with_options(cluster, args)


def cluster_of(backend: str, value: Any) -> "Cluster":
    """Return the cluster of one backend option; raise PrereqError."""
    cluster: Cluster = _BACKENDS[backend](value)
    return cluster


def check_execution(args: argparse.Namespace) -> None:
    """Raise InputError for -X without the master that would run the jobs."""
    if args.execute and args.luxi is None:
        raise InputError(f"{args.prog}: Execution of commands possible only on LUXI; pass -L")


def text_cluster(name: str) -> "Cluster":
    """Return the cluster of a text file; raise PrereqError."""
    from ganeti.placement.load.text import parse, repeated

    try:
        cluster = parse(read_input(name).decode())
    except UnicodeDecodeError as err:
        raise InputError(str(err), name) from err
    for what, every in (("node", cluster.nodes), ("instance", cluster.instances)):
        for twin in repeated([one.name for one in every]):
            say(f"Warning: {name} describes {what} {twin} more than once", file=sys.stderr)
    return cluster


def _message(name: str) -> "Cluster":
    from ganeti.placement.load.message import read

    return read(read_input(name), name)[0]


def _simulated(descriptions: list[str]) -> "Cluster":
    from ganeti.placement.load.simulated import simulated

    return simulated(descriptions, lambda text: unit_mib(text, "simulate"))


def unit_mib(text: str, field: str) -> float:
    """Return a size of the placement commands in MiB; raise PrereqError.

    Capital letters and `MB`, `GB`, `TB` are powers of 1000; small letters and `MiB` and so on are powers of 1024.
    """
    found = re.fullmatch(r"([0-9]{1,15})\s*([MGT]B?)", text.strip())
    if found is None:
        return parse_mib(text, field)
    power = {"M": 2, "G": 3, "T": 4}[found[2][0]]
    return float(int(found[1]) * 1000**power // MIB)


def luxi_client(address: str) -> "LuxiClient":
    """Return a client of the master at a socket; '' is the default socket."""
    from pathlib import Path

    from ganeti.clients.luxi import LuxiClient

    return LuxiClient(path=Path(address) if address else None)


def _luxi(address: str) -> "Cluster":
    from ganeti.placement.load import rows

    with luxi_client(address) as client:

        def ask(kind: str, fields: Sequence[str]) -> list[dict[str, Any]]:
            answer = client.query(kind, list(fields))
            return [
                {field: cell[1] for field, cell in zip(fields, row, strict=True) if cell[0] == 0}
                for row in answer["data"]
            ]

        groups = ask("group", rows.GROUP_FIELDS)
        nodes = ask("node", rows.NODE_FIELDS)
        instances = ask("instance", rows.INSTANCE_FIELDS)
        return rows.cluster_of(groups, nodes, instances, client.cluster_info())


def _rapi(address: str) -> "Cluster":
    from ganeti.placement.load import rows

    if address.startswith(FILES):
        from pathlib import Path

        directory = Path(address.removeprefix(FILES))
        groups, nodes, instances = (_saved(directory, kind, list) for kind in rows.KINDS)
        return rows.cluster_of(groups, nodes, instances, _saved(directory, "info", dict))
    url = address if ":" in address else f"https://{address}:{RAPI_PORT}"
    groups, nodes, instances = (_get(url, f"/2/{kind}?bulk=1", list) for kind in rows.KINDS)
    return rows.cluster_of(groups, nodes, instances, _get(url, "/2/info", dict))


def _saved(directory: "Path", kind: str, form: type) -> Any:
    """Return an answer of a RAPI server from `directory/kind.json`; raise PrereqError or InputError."""
    import json

    path = directory / f"{kind}.json"
    try:
        value = json.loads(read_input(str(path)))
    except ValueError as err:
        raise InputError(f"is not JSON: {err}", str(path)) from err
    if not isinstance(value, form):
        raise InputError(f"is not a {form.__name__}", str(path))
    return value


def _get(url: str, path: str, kind: type) -> Any:
    """Return a resource of a RAPI server with a valid certificate; raise PrereqError."""
    import base64
    import json
    import ssl
    import urllib.request
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme != "https":
        raise InputError(f"{parts.scheme or 'no'} URL: RAPI requires https", "master")
    host = parts.netloc.rpartition("@")[2]
    request = urllib.request.Request(f"https://{host}{path}")
    if parts.username:
        pair = f"{parts.username}:{parts.password or ''}".encode()
        request.add_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    context = ssl.create_default_context()
    try:
        with urllib.request.urlopen(request, timeout=RAPI_TIMEOUT_S, context=context) as answer:  # noqa: S310
            value = json.load(answer)
    except (OSError, ValueError) as err:
        raise PrereqError(f"cannot query {host}{path}: {err}", ErrorCode.ENVIRONMENT) from err
    if not isinstance(value, kind):
        raise InputError(f"the answer of {host}{path} is not a {kind.__name__}", "master")
    return value


_BACKENDS: dict[str, Callable[[Any], Any]] = {
    "text": text_cluster,
    "luxi": _luxi,
    "rapi": _rapi,
    "message": _message,
    "simulate": _simulated,
}


def _with_options(cluster: "Cluster", args: argparse.Namespace) -> "Cluster":
    from ganeti.base.structs import msgspec

    changes: dict[str, Any] = {}
    if offline := getattr(args, "offline", []):
        changes["nodes"] = _offline(cluster, offline)
    if getattr(args, "ignore_load", False):
        changes["utilisation"] = dict.fromkeys(
            (one.name for one in cluster.instances), (0.0, 0.0, 0.0, 0.0)
        )
    elif name := getattr(args, "load_file", None):
        changes["utilisation"] = _loads(cluster, read_input(name).decode(errors="replace"))
    cluster = msgspec.structs.replace(cluster, **changes)
    if getattr(args, "luxi", None) is not None or getattr(args, "rapi", None) is not None:
        cluster = with_static_memory(cluster, getattr(args, "static_memory", None))
    return monitored(cluster, args)


def monitored(cluster: "Cluster", args: argparse.Namespace) -> "Cluster":
    """Return the cluster with the loads of `--mond` or `--mond-data`; raise InputError or PrereqError."""
    name = getattr(args, "mond_data", None)
    if not name and getattr(args, "mond", "no") != "yes":
        return cluster
    from ganeti.cli import monitoring_input

    return monitoring_input.monitored(cluster, args, read_input(name) if name else None)


def with_static_memory(cluster: "Cluster", memory: int | None) -> "Cluster":
    """Return the cluster with this memory use of each node itself; 0 and None keep the reported values."""
    from ganeti.base.structs import msgspec

    if not memory:
        return cluster
    nodes = [msgspec.structs.replace(node, node_memory=memory) for node in cluster.nodes]
    return msgspec.structs.replace(cluster, nodes=nodes)


def resolved(known: Sequence[str], wanted: Sequence[str], complaint: str) -> list[str]:
    """Return the full names for names that are complete or end before a dot.

    InputError has the complaint and all unknown or ambiguous names.
    """
    found, wrong = [], []
    for name in wanted:
        alike = [name] if name in known else [one for one in known if one.startswith(f"{name}.")]
        if len(alike) == 1:
            found += alike
        else:
            why = f" (may be {' or '.join(alike)})" if alike else ""
            wrong.append(f"{name:.80}{why}")
    if wrong:
        raise InputError(f"{complaint}: {', '.join(wrong)}")
    return found


def split_names(text: str | None) -> list[str]:
    """Return the names in a list with commas."""
    return [name for name in (text or "").split(",") if name]


def _offline(cluster: "Cluster", wanted: Sequence[str]) -> list[Any]:
    from ganeti.base.structs import msgspec

    names = resolved(
        [node.name for node in cluster.nodes], wanted, "wrong node name(s) set as offline"
    )
    return [
        msgspec.structs.replace(node, offline=True) if node.name in names else node
        for node in cluster.nodes
    ]


def _loads(cluster: "Cluster", text: str) -> Mapping[str, tuple[float, ...]]:
    known = {one.name for one in cluster.instances}
    loads = {}
    for line in filter(str.strip, text.splitlines()):
        name, *values = line.split()
        if len(values) != LOAD_COLUMNS - 1:
            raise InputError(
                f"{_BAD_LOADS}: Cannot parse line {line:.80}; it must have an instance and four numbers"
            )
        numbers = tuple([_load(name, value) for value in values])
        if name in known:  # Instances may have been removed since the measurement.
            loads[name] = numbers
    return loads


def _load(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as err:
        raise InputError(f"{_BAD_LOADS}: {name}: cannot parse string '{text:.40}'") from err
    if not 0 <= value < math.inf:
        raise InputError(f"{_BAD_LOADS}: {name}: {text:.40} must be a number from 0")
    return value


def state_of(cluster: "Cluster", args: argparse.Namespace) -> "State":
    """Return the arrays with the limits of the options; warn about resources that instances do not explain."""
    from ganeti.placement.state import State

    tags = [tag for tag in (getattr(args, "exclusion", None) or "").split(",") if tag]
    state = State(cluster, tags)
    state.limit(getattr(args, "max_cpu", None), getattr(args, "min_disk", None))
    _warn(state)
    return state


def _warn(state: "State") -> None:
    lines = []
    for node, memory, disk in zip(
        state.nodes, state.missing_memory, state.missing_disk, strict=True
    ):
        if not node.offline and (memory > MISSING_MEMORY_MIB or disk > MISSING_DISK_MIB):
            lines.append(
                f"  - node {node.name} is missing {memory:.0f} MB ram and {disk // 1024:.0f} GB disk"
            )
    if lines:
        say("Warning: cluster has inconsistent data:", *lines, "", sep="\n", file=sys.stderr)


def save(
    state: "State", name: str | None, suffix: str, when: str, out: TextIO | None = None
) -> None:
    """Save the cluster as text to `name.suffix` if there is a name."""
    if not name:
        return
    from pathlib import Path

    from ganeti.placement.load.text import format_cluster

    path = Path(f"{name}.{suffix}")
    try:
        path.write_text(format_cluster(state.described()), encoding="utf-8")
    except OSError as err:
        raise PrereqError(f"cannot save the cluster: {err}", ErrorCode.ENVIRONMENT) from err
    say(f"The cluster state {when} has been written to file '{path}'", file=out)


def simulated_cluster(descriptions: list[str]) -> "Cluster":
    """Return an empty cluster for `--simulate`."""
    return _simulated(descriptions)


def group_scope(state: "State", wanted: str | None) -> Any:
    """Return the nodes of the selected group; PrereqError if there are several and -G is missing."""
    from ganeti.placement.score import group_scope as scope_of

    used = sorted({int(group) for group in state.group})
    if wanted is None:
        if len(used) > 1:
            names = ", ".join(state.groups[group].name for group in used)
            raise InputError(f"Found multiple node groups: {names}; choose one with -G")
        return scope_of(state, used[0] if used else 0)
    for number, group in enumerate(state.groups):
        if wanted in (group.name, group.uuid):
            return scope_of(state, number)
    names = ", ".join(group.name for group in state.groups)
    raise InputError(f"Node group {wanted:.80} not found. Node group list is: {names}")


def print_nodes(
    state: "State", args: argparse.Namespace, title: str, out: Any, scope: Any = None
) -> None:
    """Print the table of nodes if it is requested."""
    if getattr(args, "print_nodes", None) is not None:
        from ganeti.placement.report import node_table
        from ganeti.placement.score import everywhere

        lines = node_table(state, args.print_nodes, everywhere(state) if scope is None else scope)
        say("", f"{title} status:", *lines, "", sep="\n", file=out)


def print_state(state: "State", args: argparse.Namespace, title: str, scope: Any) -> None:
    """Print the requested tables of instances and nodes on standard error."""
    from ganeti.placement.report import instance_table

    if getattr(args, "print_instances", False):
        what = title.removesuffix(" cluster")
        lines = instance_table(state, scope)
        say("", f"{what} instance map:", *lines, sep="\n", file=sys.stderr)
    print_nodes(state, args, title, sys.stderr, scope)


def note_domain(
    state: "State", args: argparse.Namespace, level: int, out: TextIO | None = None
) -> None:
    """Print the omitted suffix of names, above a level of verbosity."""
    from ganeti.cli.placement_options import verbosity

    if state.domain and verbosity(args) > level:
        say(f"Note: Stripping common suffix of '{state.domain}' from names", file=out)


def print_coefficients(state: "State", scope: Any, out: TextIO | None = None) -> None:
    """Print the components of the initial score."""
    from ganeti.placement.digits import digits
    from ganeti.placement.score import components as found
    from ganeti.placement.score import score

    overall = digits(score(state, scope))
    lines = components(found(state, scope))
    say(f"Initial coefficients: overall {overall}", *lines, sep="\n", file=out)


def components(found: Any) -> list[str]:
    """Return the components of the score as lines."""
    from ganeti.placement.report import component_table

    return component_table(found)
