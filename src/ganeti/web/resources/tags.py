"""Tags of the cluster and of objects."""

from ganeti.web.operations import Call, Operation, read


def tags_of(kind: str, path: str, name: str) -> Operation:
    """Return the operation that reads the tags of one kind of object."""

    async def tags(call: Call) -> list[str]:
        name = call.items[0] if call.items else ""
        return list(await call.services.master.ask("QueryTags", kind, name))

    return read(path, name, f"Return the tags of the {kind}", tags, result="texts")
