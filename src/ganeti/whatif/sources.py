"""Finding the source of a simulation: the running cluster, or a file whose content tells its form."""

from collections.abc import Sequence
from dataclasses import replace

from ganeti.base.errors import InputError
from ganeti.base.ids import IdSource, RandomIds
from ganeti.base.sizes import parse_mib
from ganeti.cli.input_file import read_input
from ganeti.clients.luxi import LuxiClient
from ganeti.whatif.durations import JOB_FIELDS, Model, measured
from ganeti.whatif.from_rows import Row, rows_source
from ganeti.whatif.from_stored import backup_source, upstream_source
from ganeti.whatif.from_text import text_source
from ganeti.whatif.source import NodeSize, Source, checked

RUNNING = "cluster"
"""The word that stands for the running cluster."""
_BACKUP = b'{"magic": "ganeti-state"'
_SIZE_PARTS = 3
_HOW = "pass --node-size MEMORY,DISK,CPUS, for example --node-size 128g,4t,32"


def read_source(name: str, size: NodeSize | None = None) -> Source:
    """Return the cluster `cluster`, or that of a file; every node has a size.

    `size` is that of the nodes whose size the source does not tell. InputError, PrereqError.
    """
    return sized(checked(_running() if name == RUNNING else file_source(read_input(name))), size)


def file_source(data: bytes, ids: IdSource | None = None) -> Source:
    """Return the cluster of a file's content; InputError if it has none of the known forms."""
    if data.startswith(_BACKUP):
        return backup_source(data, ids or RandomIds())
    if data.lstrip().startswith(b"{"):
        return upstream_source(data)
    try:
        text = data.decode()
    except UnicodeDecodeError as err:
        raise InputError(
            "the file is not text; use 'cluster', a file of 'gnt-cluster backup', an htools data file,"
            " or a configuration of upstream Ganeti",
            "SOURCE",
        ) from err
    return text_source(text)


def running_source(client: LuxiClient) -> Source:
    """Return the cluster whose master a client is connected to; only queries are sent."""

    def ask(kind: str, fields: Sequence[str]) -> list[Row]:
        answer = client.query(kind, list(fields))
        return [
            {field: cell[1] for field, cell in zip(fields, row, strict=True) if cell[0] == 0}
            for row in answer["data"]
        ]

    return rows_source(ask, client.cluster_info())


def _running() -> Source:
    with LuxiClient() as client:
        return running_source(client)


def measured_model(*, with_archived: bool = False) -> Model:
    """Return the durations of the running cluster, from the logs of its jobs; only queries are sent."""
    wanted = (*JOB_FIELDS, "archived") if with_archived else JOB_FIELDS
    with LuxiClient() as client:
        name = str(client.cluster_info()["name"])
        data = client.query("job", wanted)["data"]
    return measured(
        name, ({field: cell[1] for field, cell in zip(wanted, row, strict=True)} for row in data)
    )


def parse_node_size(text: str) -> NodeSize:
    """Parse `MEMORY,DISK,CPUS`; InputError."""
    parts = text.split(",")
    if len(parts) != _SIZE_PARTS or not parts[2].strip().isdecimal():
        raise InputError(
            f"{text!r:.60} is not MEMORY,DISK,CPUS; use for example 128g,4t,32", "node-size"
        )
    return NodeSize(
        memory=parse_mib(parts[0], "node-size"),
        disk=parse_mib(parts[1], "node-size"),
        cpus=int(parts[2]),
    )


def sized(source: Source, size: NodeSize | None) -> Source:
    """Return the source with a size for every node; InputError if a size is missing."""
    unknown = [node for node in source.nodes if node.uuid not in source.sizes]
    if not unknown:
        return source
    if size is None:
        online = [node.name for node in unknown if not node.offline]
        if online:
            raise InputError(
                f"the source does not tell the memory, disk and processors of {len(online)} nodes,"
                f" for example {online[0]}; {_HOW}",
                "SOURCE",
            )
        size = NodeSize(memory=0, disk=0, cpus=0)
        note = f"the sizes of {len(unknown)} offline nodes are unknown: they count as empty"
    else:
        note = f"{len(unknown)} nodes have the size of --node-size"
    sizes = {**source.sizes, **{node.uuid: size for node in unknown}}
    return replace(source, sizes=sizes, notes=(*source.notes, note))
