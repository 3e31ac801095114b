"""Nodes and handlers for the tests of the RPC."""

from ganeti.model.objects import GroupUuid, Node, NodeUuid


def node(number: int = 1, *, offline: bool = False, certificate: str = "ab" * 32) -> Node:
    """A node that exists nowhere."""
    return Node(
        uuid=NodeUuid(f"00000000-0000-4000-8000-{number:012x}"),
        name=f"node{number}.example",
        primary_ip=f"192.0.2.{number}",
        secondary_ip=f"192.0.2.{number}",
        group=GroupUuid("group"),
        certificate=certificate,
        offline=offline,
    )
