"""What is asked of a merge, and what it answers."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ganeti.base.errors import InputError
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import put_row
from ganeti.model.objects import Cluster, NodeUuid
from ganeti.store.interface import Put


class Part(enum.StrEnum):
    """What two clusters may have differently, and an administrator decides."""

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
    """Of the cluster; those of other objects stay with them."""
    FILTERS = "filters"
    """Of jobs."""


class Choice(enum.StrEnum):
    """What becomes of a difference."""

    STRICT = "strict"
    """It stops the merge."""
    KEEP = "keep"
    """Their objects get as their own what their cluster gave them."""
    OURS = "ours"
    """What we have holds for their objects too."""


class SameName(enum.StrEnum):
    """What becomes of a group or network whose name is taken here."""

    STRICT = "strict"
    MERGE = "merge"
    """The two become one."""
    RENAME = "rename"
    """Append the first label of the other cluster's name to the name."""


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """What an administrator has decided; a name may be given as NAME or CLUSTER/NAME."""

    default: Choice = Choice.STRICT
    choices: Mapping[Part, Choice] = field(default_factory=dict)
    groups: SameName = SameName.STRICT
    networks: SameName = SameName.STRICT
    group_names: Mapping[str, str] = field(default_factory=dict)
    """Group of the other cluster -> its new name; the name of a local group merges the two."""
    network_names: Mapping[str, str] = field(default_factory=dict)
    watermark: int = 0
    """The greatest job id here: filters that are taken over begin there."""

    def choice(self, part: Part) -> Choice:
        """What was decided about a part."""
        return self.choices.get(part, self.default)


def parse_choices(text: str) -> tuple[Choice, dict[Part, Choice]]:
    """`keep`, or `PART=keep,PART=ours`, or both; InputError."""
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
    """How much a finding matters."""

    ERROR = "error"
    """It stops the merge."""
    DECISION = "decision"
    """Something is changed, as an option or a rule says."""
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing that the merge has found in a cluster, and says."""

    severity: Severity
    cluster: str
    text: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.cluster}: {self.text}"


@dataclass(frozen=True)
class MergePlan:
    """The configuration that a merge makes; meant to be used only without errors."""

    snapshot: Snapshot
    findings: tuple[Finding, ...] = ()
    joining: tuple[NodeUuid, ...] = ()
    """Nodes to add again: their clusters had them online. All new nodes are marked offline until then."""
    drained: tuple[NodeUuid, ...] = ()
    """Those of them that were drained, and are to be so again."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What stops it."""
        return tuple(one for one in self.findings if one.severity is Severity.ERROR)

    @property
    def cluster(self) -> Cluster:
        """Our cluster afterwards."""
        return self.snapshot.cluster

    def rows(self) -> Iterator[Put]:
        """Every object of the configuration as it is stored."""
        return (put_row(thing) for thing in self.snapshot.objects())
