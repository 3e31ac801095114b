"""Idempotency keys: a client that repeats a submission with the same key gets the same job (F16).

A batch has one key, and its jobs have `KEY/0`, `KEY/1` …; a key itself has no slash. `KEY.DIGEST`
also identifies the request: the same key with another digest is refused while the first job is in
the queue. The digest is stored with the job, so this holds under the next master and for every REST
server.
"""

import asyncio
from collections.abc import Container, Coroutine, Iterable, Sequence
from typing import Any

from ganeti.base.errors import ErrorCode, GanetiError, NotMaster, PrereqError
from ganeti.jobs.record import LiveJob
from ganeti.jobs.submission import Submission
from ganeti.model.job import Submitter
from ganeti.model.opcodes import OpCode

DIGEST = "."
"""The separator of a key and the digest of its request."""


class Keys:
    """The keys of all jobs in the queue, and of submissions in progress."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._ids: dict[str, asyncio.Future[int]] = {}
        self._digests: dict[str, str] = {}
        """The part before the digest -> the whole key."""
        self._batches: dict[str, asyncio.Future[None]] = {}
        """Batches in progress; a second one with the same key waits for the end of the first."""

    def get(self, key: str) -> asyncio.Future[int] | None:
        """Return the id of the job with this key, waiting for a submission in progress.

        PrereqError if the key belongs to another request.
        """
        stem = key.partition(DIGEST)[0]
        used = self._digests.get(stem)
        if used is not None and used != key:
            raise PrereqError(
                "this idempotency key was used for another request", ErrorCode.NOT_UNIQUE
            )
        return self._ids.get(key) or self._ids.get(stem)  # an earlier version stored no digest

    def id_of(self, key: str) -> int | None:
        """Return the id of the job with this key; None if there is none, or its submission has not ended."""
        answer = self._ids.get(key)
        return answer.result() if answer and answer.done() and not answer.exception() else None

    def _know(self, key: str, answer: asyncio.Future[int]) -> None:
        self._ids[key] = answer
        stem, has_digest, _ = key.partition(DIGEST)
        if has_digest:
            self._digests[stem] = key

    def _forget(self, key: str) -> None:
        del self._ids[key]
        self._digests.pop(key.partition(DIGEST)[0], None)

    def submit(
        self, key: str, ops: Sequence[OpCode], *, submitter: Submitter
    ) -> Coroutine[Any, Any, int]:
        """Submit a job with an unused key; the key is free again after a failure.

        The key is reserved at once, before the result is awaited.
        """
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._know(key, answer)
        return self._submit(key, ops, answer, submitter)

    async def _submit(
        self, key: str, ops: Sequence[OpCode], answer: asyncio.Future[int], submitter: Submitter
    ) -> int:
        result: int | GanetiError = NotMaster("the master daemon stops")
        try:
            (result,) = await self._submission.submit_many([ops], keys=[key], submitter=submitter)
        except GanetiError as err:
            result = err
        finally:
            if isinstance(result, int):
                answer.set_result(result)
            else:
                self._forget(key)
                answer.set_exception(result)
                answer.exception()  # there may be no other waiter
        return await answer

    async def submit_batch(
        self,
        key: str,
        batch: Sequence[Sequence[OpCode]],
        why_not: GanetiError | None = None,
        *,
        submitter: Submitter,
    ) -> list[int | GanetiError]:
        """Return an answer for each job of a batch; jobs accepted before keep their ids.

        A batch is not one transaction, so the rest of an interrupted batch is submitted. With
        `why_not` no new job is accepted, and that is the answer for each; it is raised if no job of
        the batch is known.
        """
        while (earlier := self._batches.get(key)) is not None:
            await asyncio.shield(earlier)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batches[key] = ended
        try:
            return await self._submit_batch(key, batch, why_not, submitter)
        finally:
            del self._batches[key]
            ended.set_result(None)

    async def _submit_batch(
        self,
        key: str,
        batch: Sequence[Sequence[OpCode]],
        why_not: GanetiError | None,
        submitter: Submitter,
    ) -> list[int | GanetiError]:
        keys = [f"{key}/{number}" for number in range(len(batch))]
        known = {
            number: self._ids[one].result() for number, one in enumerate(keys) if one in self._ids
        }
        if why_not is not None:
            if not known:
                raise why_not
            return [known.get(number, why_not) for number in range(len(batch))]
        answers = await self._submission.submit_many(
            batch, keys=keys, known=known, submitter=submitter
        )
        for one, answer in zip(keys, answers, strict=True):
            if isinstance(answer, int):
                self._ids[one] = _done(answer)
        return answers

    def remember(self, jobs: Iterable[LiveJob]) -> None:
        """Record the keys of jobs from the store."""
        for job in jobs:
            if job.key is not None:
                self._know(job.key, _done(job.id))

    def forget_all_but(self, job_ids: Container[int]) -> None:
        """Forget all other keys: a key lives as long as its job is in the queue."""
        for key, known in list(self._ids.items()):
            if known.done() and known.result() not in job_ids:
                self._forget(key)


def _done(job_id: int) -> asyncio.Future[int]:
    known: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    known.set_result(job_id)
    return known
