"""gnt-cluster modify --state: the back end that stores the state of a running cluster."""

import argparse

from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.cli.state_options import external_servers


def move_state(args: argparse.Namespace) -> None:
    """Move the state to another back end if the options name one; can be repeated after a failure."""
    if args.state is None:
        return
    import asyncio

    from ganeti.base.clock import SystemClock
    from ganeti.bootstrap.daemons import Daemons
    from ganeti.bootstrap.switch_state import switch_state

    paths = Paths.from_environment()
    external = external_servers(args)
    asyncio.run(
        switch_state(paths, Daemons(paths), SystemClock(), args.state, external=external, say=say)
    )
