"""Scenarios as people write them: files and options, and what is wrong with them."""

import pytest

from ganeti.base.errors import InputError
from ganeti.whatif import scenario as steps
from ganeti.whatif.scenario import (
    Drain,
    Evacuate,
    NodesCutOff,
    NodesFail,
    NodesReturn,
    Step,
    StepError,
)
from ganeti.whatif.scenario_file import parse_scenario
from ganeti.whatif.scenario_options import spoken, step_of
from ganeti.whatif.source import Source
from tests.unit.whatif.small_cluster import small_source

FILE = """\
name: Lose a rack during the upgrade
watch: 2h
steps:
  - set: {recovery: failover, n+1: no}
  - at: 1m
    drain: all
    for: 5m
  - at: 10m
    fail-rack: rack:r1
    for: 1h
  - at: 20m
    create: {count: 3, spec: {memory: 2g, disk: 10g, vcpus: 1, template: plain}, rate: 60/h}
"""


@pytest.fixture(scope="module")
def source() -> Source:
    return small_source()


def test_scenario_file_becomes_events_in_order(source: Source) -> None:
    parsed = parse_scenario(FILE, "x.yaml")
    found = steps.events(parsed.scenario.steps, source, 1)
    assert [(one.at, type(one.action).__name__) for one in found] == [
        (0, "SetPolicy"), (60, "Drain"), (600, "NodesFail"), (1200, "Create"), (1260, "Create"),
        (1320, "Create"), (4200, "NodesReturn"),
    ]  # fmt: skip
    assert found[1].action == Drain(("node1", "node2", "node3", "node4"), 300)
    assert found[2].action == NodesFail(("node1", "node2"))
    assert parsed.lines == (4, 5, 8, 11)


def test_options_mean_the_same_steps_as_a_file(source: Source) -> None:
    given = [
        step_of("set", "recovery=failover,n+1=no"),
        step_of("drain", "all@1m/5m"),
        step_of("fail-rack", "rack:r1@10m/1h"),
        step_of("create", "3:2g,10g,1,plain@60/h@20m"),
    ]
    own = parse_scenario(FILE, "x.yaml").scenario.steps
    assert steps.events(given, source, 1) == steps.events(own, source, 1)
    assert [spoken(one) for one in given] == [spoken(one) for one in own]


def test_evacuation_names_its_nodes(source: Source) -> None:
    given = step_of("evacuate", "node1,node3@5m")
    assert [(one.at, one.action) for one in steps.events([given], source, 1)] == [
        (300, Evacuate(("node1", "node3")))
    ]
    assert spoken(given) == "at 5m: evacuate node1, node3"
    primaries = step_of("evacuate-primaries", "node1")
    assert [one.action for one in steps.events([primaries], source, 1)] == [
        Evacuate(("node1",), "primary-only")
    ]
    assert spoken(primaries) == "evacuate-primaries node1"
    with pytest.raises(StepError, match="'for' has no meaning for evacuate"):
        steps.events([step_of("evacuate", "node1@5m/1h")], source, 1)


def test_switch_cuts_nodes_off_and_they_return(source: Source) -> None:
    found = steps.events([step_of("fail-switch", "switch:s1@1m/30s")], source, 1)
    assert [one.action for one in found] == [
        NodesCutOff(("node1", "node3")),
        NodesReturn(("node1", "node3")),
    ]


def test_step_without_a_time_begins_with_the_step_before(source: Source) -> None:
    given = [step_of("fail-node", "node1@5m"), step_of("fail-node", "node2")]
    assert [one.at for one in steps.events(given, source, 1)] == [300, 300]


def test_random_failures_depend_on_the_seed_alone(source: Source) -> None:
    given = [step_of("random", "30,5d,1h")]
    first, second, other = (steps.events(given, source, seed) for seed in (1, 1, 2))
    assert first == second != other
    assert all(isinstance(one.action, NodesFail | NodesReturn) for one in first)
    down: set[str] = set()
    for one in first:
        assert isinstance(one.action, NodesFail | NodesReturn)
        names = set(one.action.nodes)
        assert names.isdisjoint(down) is isinstance(one.action, NodesFail)
        down ^= names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "steps:\n  - fial-node: x\n",
            "line 2: there is no field 'fial-node'; did you mean fail-node?",
        ),
        ("steps:\n  - create: {count: many}\n", "line 2: create.count: must be a whole number"),
        (
            "steps:\n  - create:\n      count: 3\n      spec: {ram: 1g}\n",
            "line 4: there is no field 'ram'",
        ),
        (
            "steps:\n  - set: {recovery: always}\n",
            "must be one of none, restart, failover, not 'always'",
        ),
        ("steps: 3\n", "line 1: must be a list"),
        ("stages: []\n", "line 1: there is no field 'stages'"),
        ("- 1\n", "line 1: must be names with values"),
        ("a: &x 1\nb: *x\n", "line 1 has an anchor or an alias; write the value itself"),
        ("a: !!python/object:os.system 1\n", "line 1 has a tag"),
        ("[" * 100, "line 1 is nested deeper than 8 levels"),
        ("steps:\n  - at: 5m\n    at: 6m\n", "line 3 has 'at' twice"),
        ("a: [\n", "is not YAML"),
        ("a: \x00\n", "is not YAML"),
        ("#" * 300_000, "is larger than 256 KiB"),
    ],
)
def test_wrong_file_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_scenario(text, "x.yaml")
    assert message in str(refused.value)
    assert str(refused.value).startswith("x.yaml: ")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step(), "has no action; a step has exactly one of fail-node"),
        (Step(fail_node="node1", drain="node2"), "has fail-node and drain"),
        (Step(fail_node="node9"), "there is no node 'node9'; did you mean"),
        (Step(fail_node=[]), "the list of nodes is empty"),
        (Step(fail_node="offline1"), "node offline1 is marked offline"),
        (Step(fail_rack="rack:r9"), "no online node has the tag 'rack:r9'; did you mean"),
        (Step(fail_group="nogroup"), "there is no node group 'nogroup'"),
        (Step(fail_node="node1", at="soon"), "'soon' is not a time"),
        (Step(fail_node="node1", at="500d"), "'500d' is longer than a year"),
        (Step(add_nodes=0), "must be from 1 to 1000"),
        (Step(add_nodes=10**30), "must be from 1 to 1000"),
        (step_of("add-nodes", "2"), ""),
        (step_of("create", "100000"), "must be from 1 to 20000"),
        (step_of("create", "1:huge,1g,1"), "'huge' is not a size"),
        (step_of("create", "1:1g,1g,1,flash"), "there is no disk template 'flash'"),
        (step_of("create", "20000:1g,1g,1@1/d"), "ends more than a year after"),
        (step_of("create", "1:1g,1g,1@0/h"), "'0/h' is not a rate"),
        (step_of("set", "vcpu-ratio=1e9"), "set.vcpu-ratio: must be from 1 to 1000"),
        (step_of("random", "0,1d,1h"), "must be above 0"),
        (step_of("random", "366,1s,1s"), "more than 20000 events"),
        (Step(add_nodes=1, duration="5m"), "'for' has no meaning for add-nodes"),
    ],
)
def test_impossible_step_is_refused_with_its_rule(source: Source, step: Step, message: str) -> None:
    if not message:
        assert steps.events([step], source, 1)
        return
    with pytest.raises(StepError) as refused:
        steps.events([Step(fail_node="node1"), step], source, 1)
    assert message in str(refused.value)
    assert refused.value.number == 1


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("create", "x", "--create: 'x' is not N[:MEMORY,DISK,VCPUS[,TEMPLATE]]"),
        ("create", "1:1g,1g,x", "vcpus must be a whole number"),
        ("add-nodes", "many", "--add-nodes: 'many' is not N[@AT]"),
        ("set", "colour=blue", "--set: 'colour=blue' is not NAME=VALUE with a name of recovery"),
        ("set", "vcpu-ratio=big", "vcpu-ratio must be a number"),
        ("random", "7,30d", "--random: '7,30d' is not DAYS,MTBF,MTTR"),
        ("random", "week,30d,4h", "must be a number"),
    ],
)
def test_wrong_option_is_refused_by_name(option: str, value: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        step_of(option, value)
    assert message in str(refused.value)


def test_tag_may_contain_the_mark_of_times() -> None:
    step = step_of("fail-rack", "row@7/rack:r1@5m")
    assert (step.fail_rack, step.at) == ("row@7/rack:r1", "5m")
    assert step_of("fail-rack", "rack@hall").fail_rack == "rack@hall"
