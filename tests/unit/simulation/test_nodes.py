"""What simulated nodes keep so that questions to all nodes are cheap."""

from msgspec.structs import replace

from ganeti.config.fill import instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.objects import Cluster, Instance
from ganeti.rpc.procedures.host import NODE_INFO, NodeInfoArgs
from ganeti.simulation.example import configuration
from ganeti.simulation.nodes.state import Guest, Guests
from ganeti.simulation.nodes.world import SharedArguments


def guest(memory: int) -> Guest:
    cluster, *others = sorted(configuration(3, 1), key=lambda one: not isinstance(one, Cluster))
    assert isinstance(cluster, Cluster)
    instance = next(one for one in others if isinstance(one, Instance))
    spec = instance_spec(Snapshot.of(1, cluster, others=others), instance)
    return Guest(replace(spec, memory=memory))


def test_memory_of_guests_follows_each_change() -> None:
    guests = Guests()
    assert guests.memory == 0
    guests["a"], guests["b"] = guest(100), guest(200)
    assert guests.memory == 300
    guests["a"] = guest(50)
    assert guests.memory == 250
    guests.pop("b")
    guests.pop("nothing", None)
    assert guests.memory == 50
    del guests["a"]
    assert guests.memory == 0
    guests["a"] = guest(100)
    assert guests.memory == 100
    guests.clear()
    assert guests.memory == 0


def test_arguments_of_the_same_bytes_are_decoded_once() -> None:
    arguments = SharedArguments()
    args = NodeInfoArgs(hypervisors=["kvm"], storage=[])
    body = wire.encode(args)
    first = arguments.of(NODE_INFO, body)
    assert first == args
    assert arguments.of(NODE_INFO, body) is first
    assert arguments.of(NODE_INFO, wire.encode(NodeInfoArgs(hypervisors=[], storage=[]))) != args
