"""Job filters, which refer to nothing; what their predicates may say is checked where they are made."""

from ganeti.config.kinds.kind import Kind
from ganeti.model.job_filter import JobFilter

JOB_FILTER = Kind("filter", JobFilter)
