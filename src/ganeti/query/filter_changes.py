"""Creation, replacement and removal of job filters: at once, without a job, which a filter could hold back."""

from collections.abc import Callable
from typing import Any

from ganeti.base.clock import Clock
from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import is_uuid
from ganeti.base.ids import IdSource
from ganeti.config.config import Config
from ganeti.config.transaction import Draft
from ganeti.model.job_filter import JobFilter, parse_action
from ganeti.query.job_filters import check_predicates, check_reasons

FILTERS_LIMIT = 1_000
PRIORITY_MOST = 2**31


class FilterChanges:
    """The operations of LUXI and REST on job filters."""

    def __init__(
        self, config: Config, ids: IdSource, clock: Clock, greatest_job_id: Callable[[], int]
    ) -> None:
        self._config = config
        self._ids = ids
        self._clock = clock
        self._greatest_job_id = greatest_job_id

    async def replace(
        self, uuid: str | None, priority: Any, predicates: Any, action: Any, reason_trail: Any
    ) -> str:
        """Make a filter, or replace the one with this UUID; return its UUID, durably.

        Its watermark is the greatest present id of a job. InputError names a fault.
        """
        if uuid is not None and not is_uuid(uuid):
            raise InputError(f"{uuid!r:.60} is not a UUID in lower case", "uuid")
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise InputError("must be a whole number", "priority")
        if not 0 <= priority < PRIORITY_MOST:
            raise InputError("must not be negative", "priority")
        wanted, most = parse_action(action)
        own = uuid or self._ids.uuid()
        made = JobFilter(
            uuid=own,
            name=own,
            watermark=self._greatest_job_id(),
            priority=priority,
            predicates=check_predicates(predicates),
            action=wanted,
            most=most,
            reason_trail=check_reasons(reason_trail or []),
        )

        def change(draft: Draft) -> None:
            filters = draft.table(JobFilter)
            thing = draft.find(own)
            if thing is not None and not isinstance(thing, JobFilter):
                raise PrereqError(f"{own} is not a job filter", ErrorCode.NOT_UNIQUE)
            if own not in filters and len(filters) >= FILTERS_LIMIT:
                raise PrereqError(
                    f"the limit of {len(filters)} job filters is reached;"
                    " delete some: gnt-filter delete UUID",
                    ErrorCode.NO_RESOURCES,
                )
            draft.put(made)

        await self._config.change(change)
        return own

    async def delete(self, uuid: str) -> None:
        """Delete a filter, durably; PrereqError if it does not exist."""

        def change(draft: Draft) -> None:
            found = draft.table(JobFilter).get(uuid)
            if found is None:
                raise PrereqError(
                    f"job filter {uuid!r:.60} does not exist; run: gnt-filter list",
                    ErrorCode.UNKNOWN_ENTITY,
                )
            draft.remove(found)

        await self._config.change(change)
