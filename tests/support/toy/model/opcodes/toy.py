"""The toy operation: greet a node group. Its command and its REST route are declared here and nowhere else."""

from typing import Annotated, ClassVar

from ganeti.model.fields import Field, RefersTo
from ganeti.model.opcodes.group import OnGroup
from ganeti.model.operation import GROUP, Command, Rest, Right


class OpGroupGreet(OnGroup, frozen=True, kw_only=True, tag="OP_GROUP_GREET"):
    """Greet the nodes of a group."""

    greeting: Annotated[
        str, Field("what to say to the nodes (hello)", metavar="TEXT"), RefersTo.NOTHING
    ] = "hello"

    host_changing: ClassVar[bool] = False
    cli: ClassVar[Command | None] = Command(
        "gnt-group", "greet", (GROUP,), aliases=("hail",), lines=lambda _op, words: words
    )
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", "/2/groups/{group}/greet", right=Right.OPERATE),
    )
