"""The request for a merge, and its result."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ganeti.base.errors import InputError
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import put_row
from ganeti.model.objects import Cluster, NodeUuid
from ganeti.store.interface import Put


class Part(enum.StrEnum):
    """A part of the configuration that may differ between two clusters; an administrator decides."""

    HVPARAMS = "hvparams"
    """Parameters of hypervisors, those for single OSes included."""
    BEPARAMS = "beparams"
    NICPARAMS = "nicparams"
    OSPARAMS = "osparams"
    NDPARAMS = "ndparams"
    DISKPARAMS = "diskparams"
    IPOLICY = "ipolicy"
    ENABLED = "enabled"
    """Hypervisors and disk templates that their instances use."""
    OS_LISTS = "os-lists"
    """Hidden and blacklisted OS definitions."""
    TAGS = "tags"
    """Tags of the cluster; those of other objects stay with them."""
    FILTERS = "filters"
    """Job filters."""


class Choice(enum.StrEnum):
    """The treatment of a difference."""

    STRICT = "strict"
    """The difference is an error."""
    KEEP = "keep"
    """The objects get their cluster's value as their own."""
    OURS = "ours"
    """The local value applies to the objects, too."""


class SameName(enum.StrEnum):
    """The treatment of a group or network whose name exists here."""

    STRICT = "strict"
    MERGE = "merge"
    """The two are merged."""
    RENAME = "rename"
    """Append the first label of the other cluster's name to the name."""


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """The administrator's choices; a name may be NAME or CLUSTER/NAME."""

    default: Choice = Choice.STRICT
    choices: Mapping[Part, Choice] = field(default_factory=dict)
    groups: SameName = SameName.STRICT
    networks: SameName = SameName.STRICT
    group_names: Mapping[str, str] = field(default_factory=dict)
    """Group of the other cluster -> its new name; the name of a local group merges the two."""
    network_names: Mapping[str, str] = field(default_factory=dict)
    watermark: int = 0
    """The greatest local job id: adopted filters begin there."""

    def choice(self, part: Part) -> Choice:
        """Return the choice for a part."""
        return self.choices.get(part, self.default)


def parse_choices(text: str) -> tuple[Choice, dict[Part, Choice]]:
    """Return the choices of `keep`, or `PART=keep,PART=ours`, or both; InputError."""
    default, choices = Choice.STRICT, dict[Part, Choice]()
    for word in filter(None, (one.strip() for one in text.split(","))):
        part, equals, choice = word.rpartition("=")
        try:
            if equals:
                choices[Part(part)] = Choice(choice)
            else:
                default = Choice(choice)
        except ValueError:
            what = f"{word!r:.60} must be CHOICE or PART=CHOICE; choices: {', '.join(Choice)};"
            raise InputError(f"{what} parts: {', '.join(Part)}", "parameters") from None
    return default, choices


class Severity(enum.StrEnum):
    """The importance of a finding."""

    ERROR = "error"
    """It prevents the merge."""
    DECISION = "decision"
    """Something changes because of an option or a rule."""
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """A finding of the merge about a cluster."""

    severity: Severity
    cluster: str
    text: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.cluster}: {self.text}"


@dataclass(frozen=True)
class MergePlan:
    """The merged configuration; usable only without errors."""

    snapshot: Snapshot
    findings: tuple[Finding, ...] = ()
    joining: tuple[NodeUuid, ...] = ()
    """Nodes to add again: their clusters had them online. All new nodes are marked offline until then."""
    drained: tuple[NodeUuid, ...] = ()
    """The new nodes that were drained, and are to be drained again."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that prevent the merge."""
        return tuple(one for one in self.findings if one.severity is Severity.ERROR)

    @property
    def cluster(self) -> Cluster:
        """Return the local cluster after the merge."""
        return self.snapshot.cluster

    def rows(self) -> Iterator[Put]:
        """Return every object of the configuration in its stored form."""
        return (put_row(thing) for thing in self.snapshot.objects())
