"""gnt-cluster modify --state: what keeps the state of a running cluster."""

import argparse

from ganeti.base.paths import Paths
from ganeti.base.terminal import say


def move_state(args: argparse.Namespace) -> None:
    """Move the state to another back end, if one is named; may be repeated after a failure."""
    if args.state is None:
        return
    import asyncio

    from ganeti.base.clock import SystemClock
    from ganeti.bootstrap.daemons import Daemons
    from ganeti.bootstrap.etcd import ExternalEtcd
    from ganeti.bootstrap.switch_state import switch_state

    paths = Paths.from_environment()
    external = None
    if args.state_urls:
        external = ExternalEtcd(
            tuple(args.state_urls.split(",")),
            args.state_authority or "",
            args.state_credentials or "",
        )
        external.check()
    asyncio.run(
        switch_state(paths, Daemons(paths), SystemClock(), args.state, external=external, say=say)
    )
