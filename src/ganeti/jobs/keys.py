"""Idempotency keys: who submits with the same key again gets the same job (F16)."""

import asyncio
from collections.abc import Container, Coroutine, Iterable, Sequence
from typing import Any

from ganeti.base.errors import GanetiError, NotMaster
from ganeti.jobs.record import LiveJob
from ganeti.jobs.submission import Submission
from ganeti.model.opcodes import OpCode


class Keys:
    """The keys of all jobs in the queue, and of those that are being submitted."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._ids: dict[str, asyncio.Future[int]] = {}

    def get(self, key: str) -> asyncio.Future[int] | None:
        """The id of the job with this key, perhaps only after a while."""
        return self._ids.get(key)

    def submit(self, key: str, ops: Sequence[OpCode], *, source: str) -> Coroutine[Any, Any, int]:
        """Submit a job with a key that no job has; the key is free again if that fails.

        The key is taken at once, before the result is awaited.
        """
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ids[key] = answer
        return self._submit(key, ops, answer, source)

    async def _submit(
        self, key: str, ops: Sequence[OpCode], answer: asyncio.Future[int], source: str
    ) -> int:
        result: int | GanetiError = NotMaster("the master daemon stops")
        try:
            (result,) = await self._submission.submit_many([ops], key=key, source=source)
        except GanetiError as err:
            result = err
        finally:
            if isinstance(result, int):
                answer.set_result(result)
            else:
                del self._ids[key]
                answer.set_exception(result)
                answer.exception()  # nobody else may be waiting
        return await answer

    def remember(self, jobs: Iterable[LiveJob]) -> None:
        """The keys of jobs that were found in the store."""
        for job in jobs:
            if job.key is not None:
                known = asyncio.get_running_loop().create_future()
                known.set_result(job.id)
                self._ids[job.key] = known

    def forget_all_but(self, job_ids: Container[int]) -> None:
        """Keys live as long as their jobs are in the queue."""
        for key, known in list(self._ids.items()):
            if known.done() and known.result() not in job_ids:
                del self._ids[key]
