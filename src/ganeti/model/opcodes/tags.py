"""Opcodes about tags: words that an administrator attaches to objects."""

from typing import ClassVar

from ganeti.model.opcodes.base import OpCode


class OpTagsGet(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_GET"):
    """The tags of one object; `kind` is cluster, node, nodegroup, instance or network."""

    kind: str
    name: str | None = None
    use_locking: bool = False

    summary_field: ClassVar[str | None] = "name"
    host_changing: ClassVar[bool] = False


class OpTagsSet(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_SET"):
    """Add tags to one object; those that it has already stay."""

    kind: str
    name: str | None = None
    tags: list[str]


class OpTagsDel(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_DEL"):
    """Take tags from one object; all of them must be there."""

    kind: str
    name: str | None = None
    tags: list[str]


class OpTagsSearch(OpCode, frozen=True, kw_only=True, tag="OP_TAGS_SEARCH"):
    """All tags in which the regular expression `pattern` is found, as `(path of the object, tag)`."""

    pattern: str

    summary_field: ClassVar[str | None] = "pattern"
    host_changing: ClassVar[bool] = False
