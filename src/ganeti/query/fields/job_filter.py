"""Fields of job filters."""

from ganeti.model.job_filter import JobFilter
from ganeti.query.fields.field import Field, ValueKind
from ganeti.query.fields.field import field_table as table

_OTHER = ValueKind.OTHER

FILTER_FIELDS: dict[str, Field[JobFilter]] = table(
    (
        Field("uuid", "UUID", _OTHER, "UUID of the filter", lambda r: r.uuid),
        Field(
            "watermark",
            "Watermark",
            _OTHER,
            "Greatest id that a job had when the filter was made",
            lambda r: r.watermark,
        ),
        Field(
            "priority", "Priority", _OTHER, "Filters are asked from 0 upwards", lambda r: r.priority
        ),
        Field(
            "predicates",
            "Predicates",
            _OTHER,
            "What must hold for a job, so that the filter is about it",
            lambda r: list(r.predicates),
        ),
        Field(
            "action",
            "Action",
            _OTHER,
            "What is done with such a job: ACCEPT, PAUSE, REJECT, CONTINUE, or RATE_LIMIT with a number",
            lambda r: r.action_on_wire,
        ),
        Field(
            "reason_trail",
            "ReasonTrail",
            _OTHER,
            "Who made the filter, and why",
            lambda r: [list(reason) for reason in r.reason_trail],
        ),
    )
)
