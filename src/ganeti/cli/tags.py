"""The commands about tags, shared by gnt-cluster, gnt-node, gnt-instance, gnt-group and gnt-network."""

import argparse

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.input_file import read_text
from ganeti.cli.jobs import run_given
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JOB_OPTIONS, JSON
from ganeti.cli.output import print_json
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

TAGS = Argument("tags", "tags; allowed characters are letters, digits and .+*/:@_-", nargs="*")
FROM = option(
    "--from",
    dest="tags_file",
    metavar="FILE",
    completion="file",
    help="read further tags from this file, one a line; '-' is standard input",
)


def add_tag_commands(table: CommandTable, kind: str, argument: Argument | None = None) -> None:
    """Add the commands add-tags, list-tags and remove-tags for the kind of object that `argument` names."""
    name = [argument] if argument else []

    def named(args: argparse.Namespace) -> str | None:
        return getattr(args, argument.name) if argument else None

    @table.command("add-tags", *name, TAGS, FROM, OpOptions("tags.OpTagsSet"), *JOB_OPTIONS)
    def add_tags(args: argparse.Namespace) -> int:
        """Add tags; existing tags remain."""
        run_given(args, kind=kind, name=named(args), tags=_given(args))
        return 0

    @table.command("remove-tags", *name, TAGS, FROM, OpOptions("tags.OpTagsDel"), *JOB_OPTIONS)
    def remove_tags(args: argparse.Namespace) -> int:
        """Remove tags; the object must have all of them."""
        run_given(args, kind=kind, name=named(args), tags=_given(args))
        return 0

    @table.command("list-tags", *name, JSON)
    def list_tags(args: argparse.Namespace) -> int:
        """List tags, one a line."""
        with LuxiClient() as client:
            tags = sorted(client.call("QueryTags", kind, named(args) or ""))
        if args.is_json:
            return print_json(tags)
        for tag in tags:
            say(tag)
        return 0


def _given(args: argparse.Namespace) -> list[str]:
    tags = [*args.tags]
    if args.tags_file is not None:
        tags += read_text(args.tags_file).splitlines()
    tags = [tag.strip() for tag in tags if tag.strip()]
    if not tags:
        why = "a tag cannot be empty" if args.tags else "no tag was passed"
        raise InputError(f"{why}; pass at least one tag, or a file with --from", "tags")
    return tags
