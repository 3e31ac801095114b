"""`harep`: repair instances on offline or drained nodes within the limits that tags set."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import GanetiError
from ganeti.base.terminal import say
from ganeti.cli import placement_input as source
from ganeti.cli import placement_options as options
from ganeti.cli.command import EXIT_FAILURE, option
from ganeti.clients.luxi import LuxiClient

if TYPE_CHECKING:  # msgspec takes longer to load than `--help` may
    from ganeti.placement.description import Cluster, Instance
    from ganeti.placement.repair import Mark, Repair, State


def harep(args: argparse.Namespace) -> int:
    """Check every instance, make the allowed repairs, and print the counts."""
    from ganeti.base.ids import RandomIds

    args.luxi = args.luxi or ""
    cluster = source.load(args)
    with source.luxi_client(args.luxi) as client:
        repairer = Repairer(client, cluster, args, RandomIds().uuid)
        counts: Counter[str] = Counter()
        failed = 0
        for instance in cluster.instances:
            try:
                counts[repairer.repair(instance)] += 1
            except GanetiError as err:
                failed += 1
                say(f"{instance.name}: {err.message}", file=sys.stderr)
    title = "Instance status count"
    say("-" * len(title), title, "-" * len(title), sep="\n")
    for state, number in sorted(counts.items()):
        say(f"{state}: {number}")
    return EXIT_FAILURE if failed else 0


@dataclass(frozen=True)
class Repairer:
    """Executes the decisions of `ganeti.placement.repair`, one instance after the other."""

    client: LuxiClient
    cluster: "Cluster"
    args: argparse.Namespace
    new_id: Callable[[], str]

    def repair(self, instance: "Instance") -> "State":
        """Advance the repair of one instance as far as possible, and return its state; raise GanetiError."""
        from ganeti.placement.repair import Level, Result, State, expired, needed, standing

        now = time.time()
        repair = needed(instance, self._why())
        state, mark, obsolete = standing(instance.tags)
        self._untag(instance, [*obsolete, *expired(instance.tags, now)])
        if state is State.FAILED:
            return state
        once: Level | None = None
        if state is State.PENDING and mark is not None:
            if mark.jobs or repair is None:
                state, mark = self._looked_after(instance, mark, is_broken=repair is not None)
            else:
                once, state = mark.level, State.HEALTHY
        if state is not State.HEALTHY or repair is None:
            return state
        allowed = self._allowed(instance, now, once)
        if allowed is None:
            return State.NEEDS_REPAIR
        if repair.level > allowed:
            say(
                f"Not performing a repair of type {repair.level.word} on {instance.name}"
                f" because only repairs up to {allowed.word} are allowed"
            )
            is_said = mark is not None and (mark.level, mark.result) == (
                repair.level,
                Result.ENOPERM,
            )
            if not is_said:
                self._begin(instance, mark, repair, Result.ENOPERM)
            return State.NEEDS_REPAIR
        say(f"Executing {repair.level.word} repair on {instance.name}")
        self._begin(instance, mark, repair, None)
        return State.NEEDS_REPAIR if self.args.dry_run else State.PENDING

    def _why(self) -> Mapping[str, str]:
        return {node.name: node.why_offline for node in self.cluster.nodes if node.offline}

    def _looked_after(
        self, instance: "Instance", mark: "Mark", *, is_broken: bool
    ) -> "tuple[State, Mark]":
        """Return the result of a pending repair after its jobs have ended."""
        from ganeti.placement.repair import Result, State, judged

        rows = self.client.query_jobs(list(mark.jobs), ["status"]) if mark.jobs else []
        statuses = [row[0] if row is not None else None for row in rows]
        done = judged(mark, statuses, time.time(), is_broken=is_broken)
        if done is None:
            say(f"{instance.name}: repair jobs are still running ({_jobs(mark)})")
            return State.PENDING, mark
        state = State.HEALTHY if done.result is Result.SUCCESS else State.FAILED
        say(f"Moving {instance.name} from {State.PENDING} to {state}")
        if state is State.FAILED:
            say(
                f"{instance.name}: see 'gnt-job info {' '.join(map(str, mark.jobs))}'; no further repairs until the tag {done.tag} is removed"
            )
        self._replace(instance, mark, done)
        return state, done

    def _allowed(self, instance: "Instance", now: float, once: Any) -> Any:
        """Return the highest allowed repair level; None, after printing the reason, if no repair is allowed."""
        from ganeti.placement.repair import Suspended, permission

        groups = {group.uuid: group.tags for group in self.cluster.groups}
        node = next(node for node in self.cluster.nodes if node.name == instance.primary)
        found = permission([instance.tags, groups[node.group], self.cluster.tags], now)
        if isinstance(found, Suspended):
            until = "" if found.until is None else f" until {time.ctime(found.until)}"
            say(f"Not repairing {instance.name}: repairs are suspended{until}")
            return None
        if found is None and once is None:
            say(f"Not repairing {instance.name}: no tag ganeti:watcher:autorepair:TYPE allows it")
            return None
        return max((one for one in (found, once) if one is not None), default=None)

    def _begin(
        self, instance: "Instance", before: "Mark | None", repair: "Repair", result: Any
    ) -> None:
        """Submit a repair unless its result is already known, and record it in a tag."""
        from ganeti.cli.jobs import submit
        from ganeti.placement.repair import Mark

        jobs: tuple[int, ...] = ()
        if result is None:
            if self.args.dry_run:
                say(*(f"    would run {one['OP_ID']}" for one in repair.opcodes), sep="\n")
                return
            jobs = (submit(self.client, [self._annotated(one) for one in self._delayed(repair)]),)
        mark = Mark(repair.level, self.new_id(), int(time.time()), jobs, result)
        self._replace(instance, before, mark)

    def _delayed(self, repair: "Repair") -> list[dict[str, Any]]:
        if not self.args.job_delay:
            return list(repair.opcodes)
        delay = {"OP_ID": "OP_TEST_DELAY", "duration": self.args.job_delay, "no_locks": True}
        return [delay, *repair.opcodes]

    def _replace(self, instance: "Instance", before: "Mark | None", after: "Mark") -> None:
        """Add the new tag first, so that a failure never loses the record of a repair."""
        self._run("OP_TAGS_SET", instance, [after.tag], ">>> Adding the following tag to")
        self._untag(instance, [] if before is None else [before.tag])

    def _untag(self, instance: "Instance", tags: Iterable[str]) -> None:
        if gone := list(tags):
            self._run("OP_TAGS_DEL", instance, gone, ">>> Removing the following tags from")

    def _run(self, opcode: str, instance: "Instance", tags: Sequence[str], what: str) -> None:
        from ganeti.cli.jobs import submit, wait_for_result

        say(
            f"{what} {instance.name}{' (not really)' if self.args.dry_run else ''}:",
            *tags,
            sep="\n",
        )
        if self.args.dry_run:
            return
        op = {"OP_ID": opcode, "kind": "instance", "name": instance.name, "tags": list(tags)}
        wait_for_result(self.client, submit(self.client, [self._annotated(op)]), is_quiet=True)

    def _annotated(self, opcode: dict[str, Any]) -> dict[str, Any]:
        reason = ["harep", self.args.reason or "harep called", time.time_ns()]
        return {**opcode, "reason": [reason]}


def _jobs(mark: "Mark") -> str:
    return ", ".join(map(str, mark.jobs))


TOOL = options.Tool(
    "harep",
    "Repair instances on offline or drained nodes within the limits that tags set.",
    (
        options.LUXI,
        option("--job-delay", dest="job_delay", type=float, default=0.0, metavar="SECONDS",
               help="delay each repair so that its tag is written first"),
        option("--reason", metavar="REASON", help="reason, stored with the jobs"),
        option("--dry-run", dest="dry_run", action="store_true", help="show the plan and change nothing"),
    ),
    harep,
    text="The tags ganeti:watcher:autorepair:TYPE of an instance, its group or the cluster allow repairs. Tags of the"
    " instance have precedence, then those of the group. Of several tags the lowest level applies. TYPE is"
    " fix-storage (new secondary node), migrate (from a drained node), failover (from an offline node) or reinstall"
    " (recreate lost disks and install the instance). Each type includes the types before it. The types suspend and"
    " suspend:TIME forbid all repairs, for ever or until TIME. harep records the progress in the instance's tags"
    " ganeti:watcher:autorepair:pending:... and :result:.... After a failed repair, harep makes no further repairs of"
    " the instance until the administrator removes the result tag. Run harep regularly by cron.",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    return TOOL.run(argv)


if __name__ == "__main__":
    sys.exit(main())
