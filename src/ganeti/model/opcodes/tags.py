"""Opcodes about tags: words that an administrator attaches to objects."""

from typing import Annotated, ClassVar

from ganeti.model.fields import RefersTo
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import DRY_RUN, PATH_FIELDS, Parameter, Rest, Value

_TAG = Parameter("tag", Value.TEXTS, "a tag; may be repeated", "tags")


def _routes(method: str, summary: str) -> tuple[Rest, ...]:
    """The routes of an opcode that changes the tags of one object: one for each kind of objects."""
    return tuple(
        Rest(
            method, f"{path}/tags", (_TAG, DRY_RUN), summary=summary.format(kind),
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
    """The tags of one object; `kind` is cluster, node, nodegroup, instance or network."""

    kind: Annotated[str, RefersTo.NOTHING]
    name: Annotated[str | None, RefersTo.TAGGED] = None
    use_locking: bool = False

    summary_field: ClassVar[str | None] = "name"
    host_changing: ClassVar[bool] = False


class OpTagsSet(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_SET"):
    """Add tags to one object; those that it has already stay."""

    kind: Annotated[str, RefersTo.NOTHING]
    name: Annotated[str | None, RefersTo.TAGGED] = None
    tags: Annotated[list[str], RefersTo.TAG]

    no_loss: ClassVar[str] = "adds tags"
    rest: ClassVar[tuple[Rest, ...]] = _routes("PUT", "Add tags of the {}")


class OpTagsDel(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_DEL"):
    """Take tags from one object; all of them must be there."""

    kind: Annotated[str, RefersTo.NOTHING]
    name: Annotated[str | None, RefersTo.TAGGED] = None
    tags: Annotated[list[str], RefersTo.TAG]

    no_loss: ClassVar[str] = "removes tags, which can be added again"
    rest: ClassVar[tuple[Rest, ...]] = _routes("DELETE", "Take tags of the {} away")


class OpTagsSearch(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_SEARCH"):
    """All tags in which the regular expression `pattern` is found, as `(path of the object, tag)`."""

    pattern: Annotated[str, RefersTo.CLUSTER]

    summary_field: ClassVar[str | None] = "pattern"
    host_changing: ClassVar[bool] = False
