"""Opcodes about tags: labels that an administrator attaches to objects."""

from typing import Annotated, ClassVar

from ganeti.model.fields import RefersTo
from ganeti.model.opcodes.base import ExpectedSerial, OpCode
from ganeti.model.operation import DRY_RUN, PATH_FIELDS, Parameter, Rest, Value

_TAG = Parameter("tag", Value.TEXTS, "a tag; may be repeated", "tags")
_EXPECTED = Parameter(
    "expected-serial", Value.INTEGER,
    "refuse the change unless the object still has this serial_no", "expected_serial",
)  # fmt: skip


def _routes(method: str, summary: str) -> tuple[Rest, ...]:
    """Return the routes of an opcode that changes the tags of one object: one for each kind of object."""
    return tuple(
        Rest(
            method, f"{path}/tags", (_TAG, _EXPECTED, DRY_RUN), summary=summary.format(kind),
            path_fields=dict.fromkeys(PATH_FIELDS, "name"), constants={"kind": kind}, has_body=False,
        )
        for path, kind in (
            ("/2", "cluster"),
            ("/2/nodes/{node}", "node"),
            ("/2/instances/{instance}", "instance"),
            ("/2/groups/{group}", "nodegroup"),
            ("/2/networks/{network}", "network"),
        )
    )  # fmt: skip


class OpTagsGet(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_GET"):
    """Return the tags of one object; `kind` is cluster, node, nodegroup, instance or network."""

    kind: Annotated[str, RefersTo.NOTHING]
    name: Annotated[str | None, RefersTo.TAGGED] = None
    use_locking: bool = False

    summary_field: ClassVar[str | None] = "name"
    host_changing: ClassVar[bool] = False


class OpTagsSet(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_SET"):
    """Add tags to one object; its other tags remain."""

    kind: Annotated[str, RefersTo.NOTHING]
    name: Annotated[str | None, RefersTo.TAGGED] = None
    tags: Annotated[list[str], RefersTo.TAG]
    expected_serial: ExpectedSerial = None

    no_loss: ClassVar[str] = "adds tags"
    rest: ClassVar[tuple[Rest, ...]] = _routes("PUT", "Add tags to the {}")


class OpTagsDel(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_DEL"):
    """Remove tags from one object, which must have all of them."""

    kind: Annotated[str, RefersTo.NOTHING]
    name: Annotated[str | None, RefersTo.TAGGED] = None
    tags: Annotated[list[str], RefersTo.TAG]
    expected_serial: ExpectedSerial = None

    no_loss: ClassVar[str] = "removes tags, which can be added again"
    rest: ClassVar[tuple[Rest, ...]] = _routes("DELETE", "Remove tags from the {}")


class OpTagsSearch(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_SEARCH"):
    """Return all tags that match the regular expression `pattern`, as `(path of the object, tag)`."""

    pattern: Annotated[str, RefersTo.CLUSTER]

    summary_field: ClassVar[str | None] = "pattern"
    host_changing: ClassVar[bool] = False
