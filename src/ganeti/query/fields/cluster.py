"""Fields of the cluster, of which there is one row."""

from ganeti.query.context import QueryContext
from ganeti.query.fields.field import UNAVAILABLE, Field, ValueKind
from ganeti.query.fields.field import field_table as table
from ganeti.query.fields.stored import stored_fields

_TEXT = ValueKind.TEXT

_FIELDS: tuple[Field[QueryContext], ...] = (
    Field(
        "cluster_name", "Cluster", _TEXT, "Name of the cluster", lambda r: r.snapshot.cluster.name
    ),
    Field(
        "master_node",
        "Master",
        _TEXT,
        "Name of the master node",
        lambda r: r.node_name(r.snapshot.cluster.master_node),
    ),
    Field(
        "drain_flag",
        "QueueDrained",
        ValueKind.BOOL,
        "Whether the job queue accepts no jobs",
        lambda r: UNAVAILABLE if r.queue_is_drained is None else r.queue_is_drained,
    ),
    Field(
        "watcher_pause",
        "WatcherPause",
        ValueKind.TIMESTAMP,
        "Until when the watcher is to rest",
        lambda r: UNAVAILABLE if r.watcher_pause is None else r.watcher_pause,
    ),
    Field(
        "volume_group_name",
        "VgName",
        _TEXT,
        "Volume group for the disks of instances",
        lambda r: r.snapshot.cluster.vg_name or UNAVAILABLE,
    ),
)

CLUSTER_FIELDS = table(_FIELDS, stored_fields("cluster", lambda row: row.snapshot.cluster))
