"""Tags of the cluster and of objects."""

from ganeti.web.operations import (
    DRY_RUN,
    Argument,
    Call,
    Fixed,
    Handler,
    JobOf,
    Kind,
    Operation,
    constant,
    flag,
    item,
    job,
    read,
)

TAG = Argument("tag", Kind.TEXTS, "a tag; may be repeated")


def _get(kind: str) -> Handler:
    async def tags(call: Call) -> list[str]:
        name = call.items[0] if call.items else ""
        found = await call.services.master.ask("QueryTags", kind, name)
        return list(found)

    return tags


def tag_operations(path: str, kind: str, name: str) -> tuple[Operation, ...]:
    """The tags of one kind of things, at `path`."""
    named: dict[str, Fixed] = {"name": item()} if "{" in path else {}
    fixed = {
        "kind": constant(kind),
        **named,
        "tags": lambda call: call.arguments.texts("tag"),
        "dry_run": flag("dry-run"),
    }
    change = (TAG, DRY_RUN)
    what = f"of the {kind}"
    return (
        read(path, name, f"The tags {what}", _get(kind), result="list"),
        job(
            "PUT", path, name, f"Add tags {what}",
            JobOf("OP_TAGS_SET", fixed, has_body=False), *change,
        ),
        job(
            "DELETE", path, name, f"Take tags {what} away",
            JobOf("OP_TAGS_DEL", fixed, has_body=False), *change,
        ),
    )  # fmt: skip
