"""What the REST server and the process of a simulation tell each other, a line of JSON each."""

from typing import Any

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario for the running cluster; limits and meanings are those of `gnt-whatif run`."""

    scenario: dict[str, Any]
    """`name`, `watch` and `steps`, as in a scenario file."""
    seed: int = 1
    """The first seed of random choices."""
    seeds: int = 1
    node_size: str | None = None
    """`MEMORY,DISK,CPUS` of nodes whose size is unknown."""
    durations: dict[str, float] = {}
    """Replaces the default durations of operations."""
    measured: bool = False
    """Whether durations are first measured from the logs of the cluster's jobs."""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the process tells; the first line refuses or accepts the request."""

    refused: str = ""
    """What is wrong with the request."""
    failed: str = ""
    """Why the process cannot go on."""
    done: int = 0
    """Number of complete runs."""
    report: str = ""
    """The whole report as JSON, with the last line."""
    html: str = ""
