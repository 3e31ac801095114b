"""Decides the watcher's actions from its findings. Pure, so that a test runs eight hours at once (G20, F28).

It only proposes jobs. The job decides again, under the lock of the instance, whether to start it
(`if_wanted`). So it never starts an instance that a job moves or that was stopped meanwhile (F27).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ganeti.watcher.facts import Facts, Instance, Memory, Node

WINDOW_S = 8 * 3600.0
MOST_STARTS = 5
"""Maximum number of starts of an instance within the window."""
WAITS_S = (0.0, 300.0, 900.0, 2700.0, 7200.0)
"""Time after the last of these starts until the next one."""
EARLY_S = 30.0
"""Time by which a run may be early: timers are not exact."""
SETTLED_S = 600.0
"""Time that a node must be in service before instances return to it."""

DOWN, USER_DOWN = "ERROR_down", "USER_down"


@dataclass(frozen=True)
class Job:
    """A job to submit; `about` is its key in the memory."""

    about: str
    op: Mapping[str, object]
    text: str


@dataclass(frozen=True)
class Decision:
    """The jobs to submit, the memory to store, and the messages for the administrator."""

    jobs: Sequence[Job]
    memory: Memory
    remarks: Sequence[str] = field(default_factory=tuple)


def decide(facts: Facts, memory: Memory, now: float, *, verify_disks: bool = True) -> Decision:
    """Return all actions of one run, except those with an unfinished job of an earlier run (F28)."""
    memory = _without_past(facts, memory, now)
    given_up = {one.name for one in facts.instances if _is_given_up(one, memory)}
    jobs = [
        *_starts(facts, memory, now),
        *_records(facts, memory),
        *_activations(facts, memory),
        *(_verifications(facts, memory) if verify_disks else ()),
        *_returns(facts, memory, now),
    ]
    starts = {**memory.starts}
    for job in jobs:
        kind, _, name = job.about.partition(" ")
        if kind == "start":
            starts[name] = [*starts.get(name, []), now]
    remarks = [
        (
            f"instance {name} was started {MOST_STARTS} times in {WINDOW_S / 3600:g} hours and "
            "is down again: not restarting it for now"
        )
        for name in sorted(given_up - {*memory.said})
    ]
    new = msgspec.structs.replace(
        memory,
        starts=starts,
        boot_ids=_boot_ids(facts, memory, jobs),
        in_service=_in_service(facts, memory, jobs, now),
        said=tuple(sorted(given_up)),
    )
    return Decision(jobs, new, remarks)


def after_verification(facts: Facts, memory: Memory, needs_activation: Iterable[str]) -> list[Job]:
    """Return the actions for disks that a check found inactive, but that should be active."""
    named = set(needs_activation)
    return [
        _activation(one.name, "a disk is not in use")
        for one in facts.instances
        if one.name in named and _may_be_touched(facts, memory, one, "disks")
    ]


def _without_past(facts: Facts, memory: Memory, now: float) -> Memory:
    """Return the memory without ended jobs, old starts, and removed objects."""
    names = {one.name for one in facts.instances}
    starts = {
        name: kept
        for name, times in memory.starts.items()
        # A time in the future is from before the clock was set back.
        if name in names and (kept := [at for at in times if now - WINDOW_S < at <= now])
    }
    jobs = {about: job for about, job in memory.jobs.items() if job in facts.live_jobs}
    return msgspec.structs.replace(memory, starts=starts, jobs=jobs)


def _may_be_touched(facts: Facts, memory: Memory, one: Instance, kind: str) -> bool:
    return (
        one.is_wanted and one.name not in facts.locked and f"{kind} {one.name}" not in memory.jobs
    )


def _starts(facts: Facts, memory: Memory, now: float) -> Iterator[Job]:
    for one in facts.instances:
        if one.status != DOWN or one.is_there or not _may_be_touched(facts, memory, one, "start"):
            continue
        times = memory.starts.get(one.name, [])
        if len(times) < MOST_STARTS and now >= max(times, default=-WINDOW_S) + wait_after(times):
            op = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": one.name, "if_wanted": True}
            yield Job(
                f"start {one.name}",
                op,
                f"starting {one.name}, which is down (try {len(times) + 1})",
            )


def wait_after(times: Sequence[float]) -> float:
    """Return the delay between the last start and the next one."""
    return max(WAITS_S[min(len(times), len(WAITS_S) - 1)] - EARLY_S, 0.0)


def _is_given_up(one: Instance, memory: Memory) -> bool:
    return one.status == DOWN and len(memory.starts.get(one.name, ())) >= MOST_STARTS


def _records(facts: Facts, memory: Memory) -> Iterator[Job]:
    """Record the desired state "down" of instances that their users have shut down."""
    for one in facts.instances:
        if one.status == USER_DOWN and _may_be_touched(facts, memory, one, "record"):
            op = {
                "OP_ID": "OP_INSTANCE_SHUTDOWN",
                "instance_name": one.name,
                "admin_state_source": "user",
            }
            yield Job(
                f"record {one.name}", op, f"recording that the user of {one.name} has shut it down"
            )


def _activations(facts: Facts, memory: Memory) -> Iterator[Job]:
    """Activate a rebooted node's copies of disks again; guests that ran on it are started."""
    rebooted = {node.name for node in facts.nodes if _has_rebooted(node.name, node.boot_id, memory)}
    for one in facts.instances:
        if rebooted & {*one.secondaries} and _may_be_touched(facts, memory, one, "disks"):
            yield _activation(one.name, "a node that has a copy was restarted")


def _has_rebooted(name: str, boot_id: str, memory: Memory) -> bool:
    before = memory.boot_ids.get(name)
    return bool(boot_id) and before is not None and before != boot_id


def _activation(name: str, why: str) -> Job:
    op = {"OP_ID": "OP_INSTANCE_ACTIVATE_DISKS", "instance_name": name, "if_wanted": True}
    return Job(f"disks {name}", op, f"activating the disks of {name}: {why}")


def _verifications(facts: Facts, memory: Memory) -> Iterator[Job]:
    """Check disks one group at a time; groups without instances are skipped."""
    for uuid in sorted({one.group for one in facts.instances} & facts.groups.keys()):
        about = f"verify {uuid}"
        if about not in memory.jobs:
            name = facts.groups[uuid]
            op = {"OP_ID": "OP_GROUP_VERIFY_DISKS", "group_name": name}
            yield Job(about, op, f"verifying the disks of group {name}")


def _returns(facts: Facts, memory: Memory, now: float) -> Iterator[Job]:
    """Bring instances back that recovery moved away, once for each boot of their node."""
    returning = {one.name for one in facts.instances if one.returns}
    for node in facts.nodes:
        boot_id, since = memory.in_service.get(node.name, ("", 0.0))
        is_settled = boot_id == node.boot_id and 0 < since <= now - SETTLED_S + EARLY_S
        if _serves(node) and is_settled and returning & {*node.away}:
            op = {
                "OP_ID": "OP_NODE_MAINTENANCE_END",
                "node_name": node.name,
                "failback": True,
                "wait": 0,
            }
            text = f"bringing instances back to {node.name}, which is in service again"
            yield Job(f"return {node.name}", op, text)


def _serves(node: Node) -> bool:
    return bool(node.boot_id) and not (node.offline or node.in_maintenance)


def _in_service(
    facts: Facts, memory: Memory, jobs: Sequence[Job], now: float
) -> dict[str, tuple[str, float]]:
    """Return the nodes in service from which instances are or were away in this boot; others need no memory."""
    done = {job.about for job in jobs}
    found = {}
    for node in facts.nodes:
        boot_id, since = memory.in_service.get(node.name, ("", 0.0))
        is_known = boot_id == node.boot_id
        has_returned = (is_known and not since) or f"return {node.name}" in done
        if _serves(node) and (node.away or has_returned):
            began = min(since, now) if is_known else now
            found[node.name] = (node.boot_id, 0.0 if has_returned else began)
    return found


def _boot_ids(facts: Facts, memory: Memory, jobs: Sequence[Job]) -> dict[str, str]:
    """Return the boot ids to remember: a new one only when the disks of all its instances are active."""
    done = {job.about for job in jobs} | memory.jobs.keys()
    held = {
        node
        for one in facts.instances
        if one.is_wanted and f"disks {one.name}" not in done
        for node in one.secondaries
    }
    known = {}
    for node in facts.nodes:
        before = memory.boot_ids.get(node.name)
        is_late = _has_rebooted(node.name, node.boot_id, memory) and node.name in held
        boot_id = before if is_late or not node.boot_id else node.boot_id
        if boot_id:
            known[node.name] = boot_id
    return known
