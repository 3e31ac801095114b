"""Job filters, which refer to no other object; their predicates are checked when they are created."""

from ganeti.config.kinds.kind import Kind
from ganeti.model.job_filter import JobFilter

JOB_FILTER = Kind("filter", JobFilter)
