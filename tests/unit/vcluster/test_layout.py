"""Planning a cluster on one machine."""

import os
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.base.paths import NODED_PORT
from ganeti.vcluster import network
from ganeti.vcluster.layout import VirtualCluster, load, plan
from ganeti.vcluster.lifecycle import init_command


def small(directory: Path, *, netns: bool = False) -> VirtualCluster:
    return plan(directory, 3, hypervisor="fake", netns=netns, guest=None)


def test_nodes_have_names_directories_and_addresses_of_their_own() -> None:
    cluster = small(Path("/tmp/c"))
    assert [node.name for node in cluster.nodes] == [f"node{n}.vcluster.test" for n in (1, 2, 3)]
    assert len({node.address for node in cluster.nodes}) == 3
    assert len({node.root for node in cluster.nodes}) == 3
    assert all(node.address.startswith("127.") for node in cluster.nodes)


def test_a_cluster_avoids_addresses_that_are_taken() -> None:
    first = small(Path("/tmp/c"))
    with socket.socket() as taken:
        taken.bind((first.nodes[1].address, NODED_PORT))
        taken.listen()
        second = small(Path("/tmp/c"))
    assert not {node.address for node in first.nodes} & {node.address for node in second.nodes}


@pytest.mark.parametrize("text", ["2", "node2", "node2.vcluster.test"])
def test_a_node_is_called_by_number_or_name(text: str) -> None:
    cluster = small(Path("/tmp/c"))
    assert cluster.node_called(text) == cluster.nodes[1]


@pytest.mark.parametrize("text", ["0", "4", "", "node", "web1"])
def test_a_node_that_is_not_there_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(InputError, match="node1, node2, node3"):
        small(Path("/tmp/c")).node_called(text)


def test_two_directories_make_two_networks() -> None:
    one, other = small(Path("/tmp/a"), netns=True), small(Path("/tmp/b"), netns=True)
    assert one.bridge != other.bridge
    assert not {node.namespace for node in one.nodes} & {node.namespace for node in other.nodes}


def test_a_directory_too_long_for_unix_sockets_is_refused() -> None:
    with pytest.raises(InputError, match="too long"):
        small(Path("/tmp/" + "x" * 80))


@pytest.mark.parametrize("count", [0, -1, 101])
def test_a_senseless_number_of_nodes_is_refused(count: int) -> None:
    with pytest.raises(InputError, match="--nodes"):
        plan(Path("/tmp/c"), count, hypervisor="fake", netns=False, guest=None)


def test_a_saved_cluster_is_found_again(tmp_path: Path) -> None:
    cluster = plan(Path("/tmp/c"), 2, hypervisor="kvm", netns=False, guest=Path("/tmp/guest"))
    cluster = replace(cluster, directory=str(tmp_path))
    assert load(tmp_path) is None
    cluster.save()
    assert load(tmp_path) == cluster


def test_what_the_network_makes_it_also_removes() -> None:
    cluster = small(Path("/tmp/c"), netns=True)
    made = {words[3] for words in network.setup(cluster) if words[1:3] == ["netns", "add"]}
    removed = {words[3] for words in network.teardown(cluster) if words[1:3] == ["netns", "del"]}
    assert made == removed == {node.namespace for node in cluster.nodes}
    assert all(len(network.host_end(node)) <= 15 for node in cluster.nodes)
    assert len(cluster.bridge) <= 15


def test_a_command_of_a_node_runs_in_its_namespace() -> None:
    cluster = small(Path("/tmp/c"), netns=True)
    node = cluster.nodes[1]
    assert node.words(["true"]) == ["ip", "netns", "exec", node.namespace, "true"]
    assert node.environment()["GANETI_ROOTDIR"] == "/tmp/c/node2"
    # User ids belong to the host, so all nodes on it lock them in one place.
    locks = {one.environment().get("GANETI_UID_LOCKS") for one in small(Path("/tmp/d")).nodes}
    assert locks == ({"/run/ganeti-uid-pool"} if os.geteuid() == 0 else {None})


def test_the_guest_s_kernel_becomes_the_cluster_s_default(tmp_path: Path) -> None:
    (tmp_path / "kernel-args").write_text("ro a=b\n")
    cluster = plan(Path("/tmp/c"), 1, hypervisor="kvm", netns=False, guest=tmp_path)
    files = f"kernel_path={tmp_path}/vmlinuz,initrd_path={tmp_path}/initrd"
    assert f"--hypervisor-parameters=kvm:{files},kernel_args=ro a=b" in init_command(cluster)
