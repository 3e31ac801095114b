"""Wait for all jobs that an opcode submitted, and show a table of their results."""

from collections.abc import Sequence
from typing import Any

from ganeti.base.errors import GanetiError
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE
from ganeti.cli.jobs import wait_for_result
from ganeti.cli.output import format_table
from ganeti.clients.luxi import LuxiClient

HEADINGS = ("Job", "Status", "Work", "Why")


def wait_for_all(client: LuxiClient, submitted: Sequence[Sequence[Any]]) -> int:
    """Follow jobs of the form `[accepted, id or error]`, one after the other; return the exit status.

    A failed job does not stop the waiting for the others.
    """
    ids = [int(what) for is_accepted, what in submitted if is_accepted]
    refused = [str(what) for is_accepted, what in submitted if not is_accepted]
    if not ids and not refused:
        say("Nothing to do.")
        return 0
    rows = [("-", "refused", "-", why) for why in refused]
    works = works_of(client, ids)
    if ids:
        say(f"Submitted jobs {', '.join(map(str, ids))}", flush=True)
    for job_id in ids:
        say(f"Waiting for job {job_id} for {works[job_id]} ...", flush=True)
        try:
            wait_for_result(client, job_id)
        except GanetiError as err:
            rows.append((str(job_id), "error", works[job_id], err.message.splitlines()[0]))
        else:
            rows.append((str(job_id), "success", works[job_id], ""))
    say("\n".join(format_table(HEADINGS, rows)))
    return EXIT_FAILURE if any(row[1] != "success" for row in rows) else 0


def works_of(client: LuxiClient, ids: Sequence[int]) -> dict[int, str]:
    """Return the subject of each job."""
    found = client.query_jobs(ids, ["summary"]) if ids else []
    return {
        job_id: ",".join(row[0]) if row and row[0] else "?"
        for job_id, row in zip(ids, found, strict=True)
    }
