"""Commands about rules of the cluster that can be paused; an action follows the command: `gnt-backup schedule add NAME`."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ganeti.base.errors import InputError
from ganeti.cli.jobs import run_opcode
from ganeti.cli.objects import ObjectKind, print_info, print_list
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.output import wanted_filter

Action = Callable[[argparse.Namespace], int]


class Rules(NamedTuple):
    """One kind of rules."""

    what: str
    """For example `webhook`; the argument and the opcodes' field `webhook_name` have the name of a rule."""
    command: str
    """For example `gnt-cluster webhook`."""
    opcodes: str
    """Module and beginning of the opcodes' names, for example `webhooks.OpWebhook`."""
    kind: ObjectKind

    @property
    def params(self) -> OpOptions:
        """The options of add and modify."""
        return OpOptions(f"{self.opcodes}SetParams")

    def act(self, args: argparse.Namespace, more: Mapping[str, Action]) -> int:
        """Carry out the action of the command line; `more` are actions of this kind of rules, or replace those of all."""
        actions = {**self._actions(), **more}
        if args.action not in actions:
            raise InputError(f"{args.action!r:.40} must be one of: {', '.join(actions)}", "action")
        given = self.params.given(args)
        if given and args.action not in ("add", "modify"):
            raise InputError("is only for add and modify", next(iter(given)))
        if args.action not in ("list", "info") and not self._names(args):
            raise InputError(
                f"name the {self.what}; {self.command} list shows all", f"{self.what}_name"
            )
        return actions[args.action](args)

    def run(self, args: argparse.Namespace, opcode: str, **given: Any) -> Any:
        """Run one of the opcodes; return its result."""
        op = OpOptions(f"{self.opcodes}{opcode}").kind
        (name,) = self._names(args)
        return run_opcode(op(**{f"{self.what}_name": name, **given}), args)

    def _names(self, args: argparse.Namespace) -> list[str]:
        name = getattr(args, f"{self.what}_name")
        return [name] if name else []

    def _actions(self) -> dict[str, Action]:
        def changing(opcode: str, **given: Any) -> Action:
            def change(args: argparse.Namespace) -> int:
                self.run(args, opcode, **self.params.given(args), **given)
                return 0

            return change

        def show_list(args: argparse.Namespace) -> int:
            filter_ = wanted_filter("name", self._names(args), args.filter)
            return print_list(args, self.kind, filter_)

        return {
            "list": show_list,
            "add": changing("Add"),
            "modify": changing("SetParams"),
            "remove": changing("Remove"),
            "pause": changing("SetParams", is_paused=True),
            "resume": changing("SetParams", is_paused=False),
            "info": lambda args: print_info(args, self.kind, self._names(args)),
        }
