"""`ganeti-cleaner`: a timer runs it once a day on every node, to remove old data."""

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ganeti.base.errors import GanetiError
from ganeti.base.files import exclusive_file
from ganeti.base.logs import logging_to
from ganeti.base.paths import Paths
from ganeti.base.terminal import Parser, say
from ganeti.tools.leftovers import (
    forget_image_work,
    forget_old_keys,
    forget_temporary_files,
    forget_uploads,
)

LOG_DIRECTORIES = {"node": "cleaner", "master": "master-cleaner"}
KEEP_JOBS_DAYS = 21
KEEP_LOGS = 50
"""The number of logs to keep: one a run, and so one a day."""

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Do one run; return 0 also on a host that is in no cluster."""
    what = parser().parse_args(argv).what
    paths, now = Paths.from_environment(), time.time()
    if not paths.node_certificate.exists():
        return 0
    try:
        place = paths.log / LOG_DIRECTORIES[what]
        place.mkdir(mode=0o750, parents=True, exist_ok=True)
        paths.run.mkdir(parents=True, exist_ok=True)
        moment = time.strftime("%Y-%m-%dT%H_%M", time.localtime(now))
        with exclusive_file(paths.run / f"{place.name}.lock") as is_ours:
            if not is_ours:
                return 0  # an earlier run is still active
            with logging_to(place / f"cleaner-{moment}.{os.getpid()}.log", "ganeti-cleaner"):
                _tell(forget_old_logs(place))
                _tell(
                    clean_node(paths, now)
                    if what == "node"
                    else asyncio.run(forget_jobs(paths, now))
                )
                log.info("done")
    except (GanetiError, OSError) as err:
        say(f"ganeti-cleaner: {err}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the only argument."""
    made = Parser(
        prog="ganeti-cleaner",
        description="Remove old data on this node; for a timer, once a day.",
    )
    made.add_argument(
        "what",
        choices=tuple(LOG_DIRECTORIES),
        help="node: expired keys and leftovers of interrupted work;"
        f" master: archived jobs that ended more than {KEEP_JOBS_DAYS} days ago",
    )
    return made


def clean_node(paths: Paths, now: float) -> list[str]:
    """Remove old data that every node may have; return the removals."""
    done = forget_old_keys(paths, now)
    done += forget_temporary_files(paths, now)
    done += forget_image_work(paths, now)
    return done + forget_uploads(paths, now)


async def forget_jobs(paths: Paths, now: float) -> list[str]:
    """Remove old jobs from this node's archive, if it has one; a running daemon may use it meanwhile.

    Refused while the disk is full; StoreError if the archive cannot be opened.
    """
    from ganeti.jobs.view import archived_end  # noqa: PLC0415 - heavy, and not for nodes without archive
    from ganeti.store.archive import JobArchive  # noqa: PLC0415
    from ganeti.store.worker import Worker  # noqa: PLC0415

    if not paths.job_archive.exists():
        return []
    latest = now - KEEP_JOBS_DAYS * 24 * 3600

    def is_old(content: bytes) -> bool:
        end = archived_end(content)
        return end is not None and end < latest

    worker = Worker("archive")
    try:
        archive = await JobArchive.open(paths.job_archive, worker)
        try:
            count = await archive.forget(is_old)
        finally:
            await archive.close()
    finally:
        await worker.close()
    return [f"removed {count} jobs that ended more than {KEEP_JOBS_DAYS} days ago"] if count else []


def forget_old_logs(place: Path) -> list[str]:
    """Keep the newest logs of runs, with room for that of this one; their names sort by time."""
    old = sorted(place.glob("cleaner-*.log"))[: -(KEEP_LOGS - 1)]
    for path in old:
        path.unlink()
    return [f"removed {path.name}" for path in old]


def _tell(done: Iterable[str]) -> None:
    for text in done:
        log.info("%s", text)


if __name__ == "__main__":
    sys.exit(main())
