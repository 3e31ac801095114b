"""Figures of a running master, for the REST server's `/metrics`."""

from collections import Counter
from typing import Any

from ganeti.config.snapshot import Snapshot
from ganeti.jobs.queue import JobQueue
from ganeti.locking.manager import LockManager
from ganeti.model.backup_schedule import BackupRun, BackupSchedule
from ganeti.rpc.client import RpcClient
from ganeti.schedules.alerts import state_of
from ganeti.store.backend import StateBackend


def figures(
    queue: JobQueue, snapshot: Snapshot, store: StateBackend, locks: LockManager, rpc: RpcClient
) -> dict[str, Any]:
    """Numbers, and dictionaries of numbers by a label."""
    of_store, of_locks = store.statistics(), locks.statistics()
    instances = Counter(str(one.admin_state.value) for one in snapshot.instances.values())
    nodes = Counter(
        "offline" if one.offline else "drained" if one.drained else "online"
        for one in snapshot.nodes.values()
    )
    return {
        "queue": queue.statistics(),
        "drained": int(queue.is_drained),
        "locks": {"held": of_locks.owners, "waiting": of_locks.waiting, "known": of_locks.locks},
        "store": {
            "transactions": of_store.transactions,
            "syncs": of_store.syncs,
            "waiting": of_store.waiting,
            "refused": of_store.refused,
        },
        "degraded": int(of_store.degraded),
        "position": of_store.position.as_int(),
        "epoch": of_store.position.epoch,
        "instances": dict(instances),
        "nodes": dict(nodes),
        "groups": len(snapshot.groups),
        "schedules": _schedules(snapshot),
        "calls": {name: one.shown() for name, one in rpc.timings.items()},
    }


def _schedules(snapshot: Snapshot) -> dict[str, Any]:
    """Return name of a schedule -> its failed jobs, its instances by state, and each one's last good backup."""
    found: dict[str, Any] = {
        one.uuid: {"failures": 0, "states": Counter[str](), "last": {}}
        for one in snapshot.table(BackupSchedule).values()
    }
    for run in snapshot.table(BackupRun).values():
        one, instance = found.get(run.schedule), snapshot.instances.get(run.instance)
        if one is not None and instance is not None:
            one["failures"] += run.all_failures
            one["states"][state_of(run).value] += 1
            one["last"][instance.name] = run.last_good
    names = {one.uuid: one.name for one in snapshot.table(BackupSchedule).values()}
    return {names[uuid]: one for uuid, one in found.items()}
