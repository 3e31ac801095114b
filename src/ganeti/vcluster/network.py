"""Network namespaces for the nodes of a virtual cluster: one bridge, one veth pair a node. Pure."""

from ganeti.vcluster.layout import VirtualCluster, VirtualNode

Command = list[str]


def host_end(node: VirtualNode) -> str:
    """The end of the node's cable that is in the bridge; at most 15 characters."""
    return "v" + node.namespace.removeprefix("gnt-")


def setup(cluster: VirtualCluster) -> list[Command]:
    """Return commands that make the network of a cluster."""
    commands = [
        ["ip", "link", "add", cluster.bridge, "type", "bridge"],
        ["ip", "link", "set", cluster.bridge, "up"],
    ]
    for node in cluster.machines:
        commands += [
            ["ip", "tuntap", "add", node.tap, "mode", "tap"],
            ["ip", "link", "set", node.tap, "master", cluster.bridge, "up"],
        ]
    for node in cluster.local_nodes:
        inside = ["ip", "-n", node.namespace]
        commands += [
            ["ip", "netns", "add", node.namespace],
            [
                "ip",
                "link",
                "add",
                host_end(node),
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                node.namespace,
            ],
            ["ip", "link", "set", host_end(node), "master", cluster.bridge, "up"],
            [*inside, "link", "set", "lo", "up"],
            [*inside, "addr", "add", f"{node.address}/24", "dev", "eth0"],
            [*inside, "link", "set", "eth0", "up"],
        ]
    return commands


def guest_bridges(cluster: VirtualCluster) -> list[Command]:
    """Return commands that make the bridge of the guests' interfaces, which is otherwise empty."""
    if not cluster.guest_bridge:
        return []
    places = [["ip", "-n", node.namespace] for node in cluster.local_nodes if node.namespace]
    commands = []
    for ip in places or [["ip"]]:
        commands += [
            [*ip, "link", "add", cluster.guest_bridge, "type", "bridge"],
            [*ip, "link", "set", cluster.guest_bridge, "up"],
        ]
    return commands


def teardown(cluster: VirtualCluster) -> list[Command]:
    """Return commands that remove it; each may fail because its object does not exist any more."""
    commands = []
    for node in cluster.nodes:
        if node.tap:
            commands.append(["ip", "link", "del", node.tap])
        if not node.namespace:
            continue
        # The cable first: a removed namespace releases its interfaces only later.
        commands += [["ip", "link", "del", host_end(node)], ["ip", "netns", "del", node.namespace]]
    return [
        *commands,
        *(["ip", "link", "del", name] for name in (cluster.bridge, cluster.guest_bridge) if name),
    ]
