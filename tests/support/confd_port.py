"""A confd server of its own for commands that ask one."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from ganeti import ssconf
from ganeti.api.confd_server import ConfdServer, bound_socket
from ganeti.base.clock import SystemClock
from ganeti.base.paths import Paths
from ganeti.confd.keys import keep_key, keep_own_key, key_of_node, new_key
from tests.unit.confd.cluster import facts_of, objects


@contextlib.contextmanager
def serving(paths: Paths, regular_node: str = "") -> Iterator[int]:
    """The port of a server in a thread; the node of `paths` has its key and the list of candidates.

    `regular_node` is the name of the server's node if that is not a candidate; then it is the node of `paths`.
    """
    address = "127.0.0.1"
    facts_of_node = {
        "master_candidates_ips": "" if regular_node else address,
        "node_primary_ips": f"{regular_node} {address}" if regular_node else "",
    }
    ssconf.write_set(paths, 1, facts_of_node)
    keep_key(paths, key := new_key())
    if regular_node:
        key = key_of_node(key, regular_node)
        keep_own_key(paths, key)
    opened = bound_socket("127.0.0.1", 0)
    facts = facts_of(objects())
    server = ConfdServer(opened, (key,), lambda: facts)
    loop = asyncio.new_event_loop()

    def serve() -> None:
        loop.add_reader(opened.fileno(), server.readable, SystemClock().time)
        loop.run_forever()

    thread = threading.Thread(target=serve)
    thread.start()
    yield opened.getsockname()[1]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    opened.close()
