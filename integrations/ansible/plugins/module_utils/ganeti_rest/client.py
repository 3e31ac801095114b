"""The client: the generated operations, the end of jobs, and events."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from http.client import HTTPResponse
from typing import Any, Self

from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest import events as streams
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest import jobs
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest.connection import (
    Connection,
    Request,
    Value,
    credentials,
    tls_context,
)
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest.operations import (
    Operations,
)

TIMEOUT_S = 90.0
"""Longer than the server needs for any answer."""
KEY = "Idempotency-Key"


class Client(Operations):
    """One server and one user; for one thread at a time.

    A request that only reads is repeated if the connection breaks. A request for a job gets an idempotency key, so it is
    repeated too, and the cluster still runs one job. No other request is repeated once it has been sent.
    """

    def __init__(
        self,
        address: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        verify: bool = True,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Set up the client; the first request connects.

        `address` is `HOST` or `HOST:PORT`; `ca_file` has the certificate that signs the server's, which is the server's
        own (`rapi.pem` without its key) unless an authority has signed it. ValueError without credentials.
        """
        context = tls_context(ca_file, verify=verify)
        self._connection = Connection(
            address, credentials(user, password, token), context, timeout_s
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def wait(
        self,
        job_id: int,
        *,
        on_update: Callable[[jobs.JobUpdate], None] | None = None,
        limit_s: float | None = None,
    ) -> list[Any]:
        """Wait for the end of a job; return the results of its operations. JobFailed, JobTimeout."""
        for update in self.job_updates(job_id, limit_s=limit_s):
            if on_update is not None:
                on_update(update)
        return jobs.results(self.job(job_id))

    def job_updates(self, job_id: int, *, limit_s: float | None = None) -> Iterator[jobs.JobUpdate]:
        """Yield each update of a job until it has ended; JobTimeout."""
        return jobs.updates(self._wait, job_id, limit_s)

    def events(
        self, *, after: str | None = None, kinds: Sequence[str] = ()
    ) -> Iterator[streams.Event]:
        """Yield events for ever, also after a change of the master; `after` is the number of the last known event."""
        query = {"kinds": ",".join(kinds) or None}

        def begin(last: str | None) -> AbstractContextManager[HTTPResponse]:
            headers = {"Last-Event-ID": last} if last else {}
            return self._connection.stream(Request("GET", "/2/events", query, headers=headers))

        return streams.follow(begin, after)

    def _wait(
        self, job_id: int, fields: list[str], info: list[Any] | None, line: int | None
    ) -> Mapping[str, Any] | None:
        return self.job_wait(
            job_id, fields=fields, previous_job_info=info, previous_log_serial=line
        )

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Value],
        body: Any = None,
        *,
        key: str | None = None,
        is_job: bool = False,
        is_read: bool = False,
        is_raw: bool = False,
    ) -> Any:
        headers = {KEY: key or secrets.token_hex(16)} if is_job else {}
        request = Request(method, path, query, body, headers, may_repeat=is_job or is_read)
        answer = self._connection.ask(request)
        return answer.content if is_raw else answer.json
