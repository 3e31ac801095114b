"""Opcodes about tags: words that an administrator attaches to objects."""

from typing import Annotated, ClassVar

from ganeti.model.fields import RefersTo
from ganeti.model.opcodes.base import OpCode


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


class OpTagsDel(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_DEL"):
    """Take tags from one object; all of them must be there."""

    kind: Annotated[str, RefersTo.NOTHING]
    name: Annotated[str | None, RefersTo.TAGGED] = None
    tags: Annotated[list[str], RefersTo.TAG]

    no_loss: ClassVar[str] = "removes tags, which can be added again"


class OpTagsSearch(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_SEARCH"):
    """All tags in which the regular expression `pattern` is found, as `(path of the object, tag)`."""

    pattern: Annotated[str, RefersTo.CLUSTER]

    summary_field: ClassVar[str | None] = "pattern"
    host_changing: ClassVar[bool] = False
