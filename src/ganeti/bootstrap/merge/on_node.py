"""`ganeti-cluster-merge --on-node`: answers a merge's requests on a node while the connection lasts.

Requests come on standard input, a line each, until its end; the answers go to standard output.
"""

import asyncio
import contextlib
import sys

from ganeti.base.errors import GanetiError
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import Daemons
from ganeti.bootstrap.merge.agent import Agent
from ganeti.bootstrap.merge.messages import Reply, Request, line_of, parse
from ganeti.bootstrap.merge.original import OriginalAgent
from ganeti.bootstrap.take_node import Node


def on_node() -> int:
    """Answer the requests on standard input; a line with the length in bytes precedes each answer."""
    paths = Paths.from_environment()
    with contextlib.suppress(BrokenPipeError):  # the caller has disconnected
        for line in iter(sys.stdin.buffer.readline, b""):
            data = line_of(_answer_to(paths, line))
            sys.stdout.buffer.write(b"%d\n%b" % (len(data), data))
            sys.stdout.buffer.flush()
    return 0


def _answer_to(paths: Paths, line: bytes) -> Reply:
    try:
        request = parse(line, Request, "request")
        return asyncio.run(agent_of(paths).answer(request))
    except GanetiError as err:
        return Reply(error=err.message)
    except OSError as err:
        return Reply(error=f"{err.filename or 'this node'}: {err.strerror or err}")


def agent_of(paths: Paths) -> Agent:
    """Return the class that answers for this node.

    Upstream's until the node's files were moved and it has joined.
    """
    node = Node(paths)
    return OriginalAgent(paths, node) if node.is_original else Agent(paths, Daemons(paths))
