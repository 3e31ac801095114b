"""What scripts may rely on: commands, their input, and what holds of exit code and output, as upstream's have it.

Facts about upstream's files need these (`htools_fixtures`) and are skipped without; the others describe their
clusters here. What we answer differently on purpose is in `DIFFERENCES`, with the reason.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from ganeti.cli import (
    hail,
    harep,
    hbal,
    hcheck,
    hinfo,
    hroller,
    hscan,
    hspace,
    hsqueeze,
    mon_collector,
)
from tests.support.htools_fixtures import fixture_path


def collect(words: list[str]) -> int:
    mon_collector.table.main(words)


TOOLS: Mapping[str, Callable[[list[str]], int]] = {
    "hail": hail.main,
    "hbal": hbal.main,
    "hcheck": hcheck.main,
    "hinfo": hinfo.main,
    "hroller": hroller.main,
    "hscan": hscan.main,
    "hspace": hspace.main,
    "hsqueeze": hsqueeze.main,
    "harep": harep.main,
    "mon-collector": collect,
}

DIFFERENCES = {
    "hail in one bad group of several": "upstream refuses every allocation if any group of the cluster cannot lose a"
    " node; we refuse only what makes it worse, counted by node and cause",
    "failover without spindles": "on exclusive storage upstream refuses to move a mirrored instance to its secondary"
    " node if the number of its spindles is unknown, and counts its node as one that cannot be lost; here it may, since"
    " the copy of its disks is there already",
    "hcheck": "OFFLINE_SEC: upstream counts nodes that are offline; we count instances, as the title says. FINAL"
    " NEED_REBALANCE: upstream repeats the first verdict; we say what holds after balancing",
    "tags": "upstream takes any tag that begins with htools:iextags:PREFIX; ours ends at a colon, as all other"
    " prefixes do. Upstream lets migration tags keep instances from failing over from an offline node, in capacity"
    " checks too; here they bind migrations only",
    "memory of KVM nodes": "upstream takes 4096 MiB as what a node uses itself, unless --static-kvm-node-memory says"
    " otherwise; here it is what the node reports, unless the option says otherwise",
    "hail -S": "free memory after it is what nodes would report then; upstream's keeps what it was",
    "hspace": "mirrored instances are checked as hail checks them; upstream promises some that its hail refuses."
    " With -l all instances of the tiered allocation count; upstream stops earlier",
    "hroller temporary": "we put instances where nodes stay most even, upstream on the first node with room; groups may"
    " come in another order",
    "messages": "errors begin with upstream's words, which scripts look for, and then say what to do. What -v shows of"
    " a request is JSON, not a record of Haskell's; hspace does not list the nodes that it may allocate to."
    " Negative limits are refused; upstream reads them as no limit",
    "small numbers": "0 is printed as 0, not as 0.000000, among the scores of a balanced cluster",
}


class Fact(NamedTuple):
    """A command; `{x}` among its words is a file of FILES or of upstream's. Patterns must be found; `!` forbids."""

    words: str
    code: int = 0
    out: str = ""
    err: str = ""


POLICY = "128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|plain,sharedfile,drbd|4.0|32.0"


def text(nodes: str, instances: str = "", tags: str = "", groups: str = "g|u|preferred||") -> str:
    """A description from its sections."""
    names = [line.split("|")[0] for line in groups.split("\n")]
    policies = "\n".join(f"{name}|{POLICY}" for name in ("", *names))
    sections = (groups, nodes, instances, tags, policies)
    return "\n".join(f"{section}\n" if section else "" for section in sections)


def node(name: str, free: int, role: str = "N", tags: str = "", group: str = "u") -> str:
    return f"{name}|16384|0|{free}|100000|90000|8|{role}|{group}|8|{tags}|N|0|1"


def shared(name: str, on: str, memory: int = 4096, tags: str = "", status: str = "running") -> str:
    return f"{name}|{memory}|1024|1|{status}|Y|{on}||sharedfile|{tags}|1|-"


def mirrored(name: str, first: str, second: str, memory: int = 4096) -> str:
    return f"{name}|{memory}|1024|1|running|Y|{first}|{second}|drbd||1|-"


TWO = [node("a.example.com", 8192, "M", "rack:1"), node("b.example.com", 16384, "N", "rack:2")]
PAIR = [shared("one.example.com", "a.example.com"), shared("two.example.com", "a.example.com")]
NO_NODES: Mapping[str, object] = {"nodegroups": {}, "nodes": {}, "instances": {}}
FILES: Mapping[str, str] = {
    "lossy": text(
        "n1|8000|0|1400|99999|98976|16|N|u|1\nn2|8000|0|8000|99999|99999|16|N|u|1\nn3|4000|0|4000|99999|98976|16|N|u|1",
        "web1|6600|1024|1|running|Y|n1|n3|drbd||1",
    ),
    "pair": text("\n".join(TWO), "\n".join(PAIR)),
    "masters": text("\n".join([node("a", 16384, "M"), node("b", 16384, "M")])),
    "no-master": text(node("a", 16384)),
    "empty": text(""),
    "no-third": text("\n".join([node("a", 16384, "M"), node("b", 16384)]), mirrored("x", "a", "b")),
    "two-groups": text(
        "\n".join([node("a", 16384, "M"), node("b", 16384, group="v")]),
        groups="g|u|preferred||\nh|v|preferred||",
    ),
    "chain": text(
        "\n".join([node("a", 12288, "M"), node("b", 12288), node("c", 16384)]),
        "\n".join([mirrored("x", "a", "b"), mirrored("y", "b", "c")]),
    ),
    "tags": text(
        "\n".join(
            [node("a", 16384, "M", "red"), node("b", 16384, "N", "red,blue"), node("c", 16384)]
        )
    ),
    "missing": text("\n".join([node("a", 16384, "M"), node("b", 4096)])),
    "unknown-node": text(node("a", 16384, "M"), shared("lost", "nowhere")),
    "twice": text("\n".join([node("a", 16384, "M"), node("a", 16384)])),
    "instance-twice": text(
        "\n".join(TWO),
        "\n".join([shared("one", "a.example.com"), shared("one", "b.example.com")]),
    ),
    "group-twice": text(node("a", 16384, "M")).replace(
        "g|u|preferred||\n", "g|u|preferred||\ng|v|preferred||\n", 1
    ),
    "short-line": text("a|1|2"),
    "colon": text(
        "\n".join([node("a", 8192, "M"), node("b", 16384)]),
        "\n".join([shared("one", "a", tags="service-x"), shared("two", "a", tags="service-x")]),
        tags="htools:iextags:service",
    ),
    "exclusive": text(
        "\n".join([node("a", 8192, "M"), node("b", 16384)]),
        "\n".join([shared("one", "a", tags="test:x"), shared("two", "a", tags="test:x")]),
    ),
    "stopped": text(
        "\n".join([node("a", 16384, "M"), node("b", 16384)]),
        shared("off", "a", memory=14000, status="ADMIN_down"),
    ),
    "half-exclusive": text(
        "\n".join(
            [
                node("a", 16384, "M").replace("|N|0|1", "|Y|8|1"),
                node("b", 16384).replace("|N|0|1", "|N|8|1"),
            ]
        )
    ),
    "loads-short": "one\n",
    "loads-words": "one.example.com cpu mem dsk net\n",
    "loads-unknown": "no-such-instance 2 2 2 2\n",
    "loads": "one.example.com 2 2 2 2\n",
    "array": "[]",
    "array-of-text": '["text"]',
    "nothing-at-all": "",
    "nothing": "{}",
    "number": '{"request": 0}',
    "bad-name": json.dumps({**NO_NODES, "request": {"type": "relocate", "name": 0}}),
    "dance": json.dumps({**NO_NODES, "request": {"type": "dance"}}),
    "latin": "caf\xe9",
}
MESSAGE = r"(?m)^Error: Parsing input IAllocator message: "
PARSING = r"\AError while parsing command line arguments:\n"
BALANCED = r"Nothing to do, exiting|No solution found"

FACTS = [
    # Options and arguments.
    *(Fact(f"{tool} --version", out=rf"{tool} \(ganeti\)") for tool in TOOLS),
    *(Fact(f"{tool} --help", out="[Uu]sage") for tool in TOOLS),
    *(Fact(f"{tool} --no-such-option", 2,
           err=r"\ACommand line error: unrecognized option `--no-such-option'.*\n\nusage: ")
      for tool in TOOLS if tool != "mon-collector"),
    Fact("hspace --no-such=2", 2, err=r"\ACommand line error: unrecognized option `--no-such'\n"),
    Fact("hspace --machine-readable=foo", 1, err=PARSING + "argument --machine-readable: invalid"),
    *(Fact(f"{tool} unexpected", 1, err=r"(?m)^Error: This program doesn't take any arguments.\n\Z")
      for tool in TOOLS if tool not in ("hail", "hscan", "mon-collector")),
    Fact("hail", 1, err=r"(?m)^Error: This program needs an input file.\n\Z"),
    Fact("hail a b", 1, err=r"(?m)^Error: Only one argument is accepted \(the input file\)\n\Z"),
    *(Fact(tool, 1, err=r"(?m)^Error: failed to load data, aborting: No backend selected: pass one of")
      for tool in ("hbal", "hspace", "hinfo", "hroller", "hcheck", "hsqueeze")),
    Fact("hbal -t {pair} -m localhost", 1,
         err=r"(?m)^Error: Only one of the rapi, luxi, and data files options should be given.\n\Z"),
    Fact("hbal -t {pair} --priority=abc", 1, err=r"(?m)^Error: Unknown priority 'abc'; use low,"),
    Fact("hbal -t {pair} --priority=low -C", 0, out="gnt-instance (failover|migrate)"),
    Fact("hbal -t {pair} -l -1", 1, err=f"{PARSING}argument .*0 or more"),
    Fact("hbal -t {pair} --min-disk 2", 1, err=f"{PARSING}argument .*0 to 1"),
    # Text.
    Fact("hbal -t {unknown-node}", 1, err="Unknown node 'nowhere' for instance lost"),
    Fact("hspace -t {unknown-node}", 1, err="Unknown node 'nowhere' for instance lost"),
    Fact("hinfo -t {unknown-node}", 1, err="Unknown node 'nowhere' for instance lost"),
    Fact("hinfo -t {twice}", 0, out="Loaded 2 nodes", err="twice describes node a more than once"),
    Fact("hinfo -t {instance-twice}", 0, out="2 instances", err="describes instance one more than"),
    Fact("hinfo -t {group-twice}", 1, err="group g is described twice"),
    Fact("hinfo -t {short-line}", 1, err="columns"),
    Fact("hinfo -t {latin}", 1, err="decode"),
    Fact("hinfo -t /nonexistent", 1,
         err=r"(?m)^Error: failed to load data, aborting: /nonexistent: does not exist\n"),
    Fact("hinfo -t /dev/null", 1,
         err=r"(?m)^Error: failed to load data, aborting: Invalid format of the input file: 1 sections"),
    Fact("hinfo -t {missing}", 0, err="node b is missing .* ram"),
    Fact("hbal -t {missing}", 0, err="node b is missing .* ram"),
    # Names.
    Fact("hbal -t {pair} --exclude-instances no-such", 1, err=r"(?m)^Error: Unknown instance\(s\): no-such\n"),
    Fact("hbal -t {pair} --select-instances no-such", 1, err=r"(?m)^Error: Unknown instance\(s\): no-such\n"),
    Fact("hcheck -t {pair} --exclude-instances no-such", 1, err=r"(?m)^Error: Unknown instance\(s\): no-such\n"),
    Fact("hbal -t {pair} --select-instances no,one,such", 1, err=r"instance\(s\): no, such\n"),
    Fact("hbal -t {pair} --select-instances one", 0, out=r" 1\. one "),
    Fact("hbal -t {pair} --exclude-instances one --select-instances two", 0, out=r" 1\. two"),
    Fact("hbal -t {pair} -O no-such", 1, err=r"(?m)^Error: wrong node name\(s\) set as offline: no-such\n"),
    Fact("hinfo -t {pair} -O no-such", 1, err=r"(?m)^Error: wrong node name\(s\) set as offline: no-such\n"),
    Fact("hbal -t {pair} -O a", 0, out="Solution length=2"),
    Fact("hail {hail-alloc-drbd.json} --restrict-allocation-to no-such", 1, err=r"Unknown node\(s\): no-such"),
    # hbal.
    Fact("hbal -t {pair}", 0, out=f"!{BALANCED}"),
    Fact("hbal -t {pair} -C", 0, out="gnt-instance (failover|migrate|replace-disks)"),
    Fact("hbal -t {pair} -X", 1, err=r"(?m)^Error: hbal: Execution of commands possible only on LUXI; pass -L\n"),
    Fact("hsqueeze -t {pair} -X", 1, err=r"(?m)^Error: hsqueeze: Execution of commands possible only on LUXI; "),
    Fact("hbal -t {pair} --min-gain 10000 --min-gain-limit 10000", 0, out="No solution found"),
    Fact("hbal -t {empty}", 0, out="Cluster is empty"),
    Fact("hbal -t {two-groups}", 0, out="Cluster is empty"),
    Fact("hbal -t {n1-failure.data}", 0, out="Initial check done: 4 bad nodes, 8 bad instances"),
    Fact("hbal -t {n1-failure.data} -G group-02", 0, out="Group size 0 nodes, 0 instances"),
    Fact("hbal -t {n1-failure.data} -G group-01", 0, out=r"Cluster is not N\+1 happy, continuing"),
    Fact("hbal -t {n1-failure.data} -G no-such", 1,
         err=r"(?m)^Error: Node group no-such not found. Node group list is: group-01, "),
    Fact("hbal -t {hbal-split-insts.data}", 1, err=r"(?m)^Error: Found multiple node groups: .*; choose one with -G\n"),
    Fact("hbal -t {hbal-split-insts.data} -G group-01 -O node-01-001 -v", 0,
         out="Cluster score improved from .* to", err="Found instances belonging to multiple"),
    Fact("hbal -t {hbal-dyn.data}", 0, out="Solution length=1"),
    Fact("hbal -t {hbal-dyn.data} --ignore-dynu", 0, out="Cluster is already well balanced"),
    Fact("hbal -t {hbal-soft-errors.data}", 0, out="Solution length=0"),
    Fact("hbal -t {hbal-soft-errors.data}", 0, out="consider using the --ignore-soft-errors opt"),
    Fact("hbal -t {hbal-soft-errors.data} --ignore-soft-errors", 0, out="Solution length=[1-9]"),
    Fact("hbal -t {hbal-soft-errors.data} --ignore-soft-errors", 0, out="ignoring soft errors"),
    Fact("hbal -t {hbal-evac.data}", 0, out="Solution length=4"),
    Fact("hbal -t {hbal-evac.data} --evac-mode", 0, out=r"a=f r:node-1 f(.|\n)*length=3"),
    Fact("hbal -t {hbal-evac.data} --evac-mode --restricted-migration", 0,
         out=r"a=f r:node-1\n(.|\n)*length=3"),
    Fact("hbal -t {hbal-excl-tags.data} --exclusion-tags test", 0, out="Cluster score improved"),
    Fact("hbal -t {exclusive} --exclusion-tags test -v -v", 0, out="pri_tags_score +1.0"),
    Fact("hbal -t {exclusive} --exclusion-tags te -v -v", 0, out="pri_tags_score +0.0"),
    Fact("hbal -t {colon} -v -v", 0, out="pri_tags_score +0.0"),
    Fact("hbal -t {pair} -U {loads-short}", 1, err=r"(?m)^Error: can't parse utilisation data: Cannot parse line one; it must"),
    Fact("hbal -t {pair} -U {loads-words}", 1,
         err=r"(?m)^Error: can't parse utilisation data: one.example.com: cannot parse string 'cpu'\n"),
    Fact("hbal -t {pair} -U {loads-unknown}", 0),
    Fact("hbal -t {pair} -U {loads}", 0),
    # hcheck.
    Fact("hcheck -t {n1-failure.data}", 1, out="Cluster needs rebalancing."),
    Fact("hcheck -t {n1-failure.data} --no-simulation", 0, out="Running in no-simulation mode."),
    Fact("hcheck -t {n1-failure.data} --machine-readable", 1, out="HCHECK_FINAL_GROUP_0_N1_FAIL=4"),
    Fact("hcheck -t {n1-failure.data} --machine-readable --no-simulation", 0, out="HCHECK_FINAL_"),
    Fact("hcheck -t {clean-nonzero-score.data}", 0, out="No need to rebalance cluster, no prob"),
    Fact("hcheck -t {clean-nonzero-score.data} --machine-readable", 0,
         out="HCHECK_INIT_CLUSTER_NEED_REBALANCE=0\nHCHECK_FINAL"),
    Fact("hcheck -t {clean-nonzero-score.data} --machine-readable", 0, out="HCHECK_OK=1"),
    Fact("hcheck -t {clean-nonzero-score.data} -q", 0, out="!."),
    # hinfo.
    Fact("hinfo -v -v -p --print-instances -t {hspace-existing.data}", 0, out="Cluster score"),
    Fact("hinfo -t {hbal-split-insts.data}", 0, out="2 node groups"),
    Fact("hinfo -t {masters}", 0, out="Loaded 2 nodes, 0 instances, 1 node group\n"),
    Fact("hinfo -t {stopped}", 0, out="Loaded 2 nodes, 1 instance, 1 node group\n"),
    *(Fact(f"{words} -t {{pair}}", 0, out="Note: Stripping common suffix of '.example.com' from names")
      for words in ("hinfo -v -v", "hbal -v")),
    # hroller.
    Fact("hroller -t {empty}", 1, err=r"(?m)^Error: No master node found \(maybe not supported by backend\); pass -f"),
    Fact("hroller -f -t {empty}", 1, err=r"\AWarning: No master node.*\nError: Cannot create node graph: the"),
    Fact("hroller -f -t {masters}", 1, err=r"(?m)^Error: Found more than one master node: a, b\n"),
    Fact("hroller -t {no-master}", 1, err=r"(?m)^Error: No master node found \(maybe not supported by backend\); pass -f"),
    Fact("hroller -f -t {no-master}", 0, out="'Node Reboot Groups'\na\n"),
    Fact("hroller --no-headers -t {chain}", 0, out=r"\A\S+\n\S+\n(\S+\n)?\Z"),
    Fact("hroller --no-headers -O b -t {chain}", 0, out=r"\Ac,a\n\Z"),
    Fact("hroller --no-headers --node-tags=red -t {tags}", 0, out=r"\Ab,a\n\Z"),
    Fact("hroller --no-headers --node-tags=blue -t {tags}", 0, out=r"\Ab\n\Z"),
    Fact("hroller --node-tags=none -t {tags}", 1, err=r"(?m)^Error: Cannot create node graph: the options leave"),
    Fact("hroller --one-step-only -t {tags}", 0, out=r"\A'First Reboot Group'\nb\nc\na\n\Z"),
    Fact("hroller --no-headers -t {hroller-online.data}", 0,
         out=r"\Anode-01-00.,node-01-00.\nnode-01-002\nnode-01-003\n\Z"),
    Fact("hroller --no-headers --offline-maintenance -t {hroller-online.data}", 0,
         out=r"\Anode-01-00.,node-01-00.\nnode-01-00.,node-01-00.\n\Z"),
    Fact("hroller --no-headers --skip-non-redundant -t {pair}", 0, out=r"\Ab.example.com\n\Z"),
    Fact("hroller --full-evacuation -t {no-third}", 1,
         err=r"(?m)^Error: Not enough capacity to move secondaries: x: "),
    # hspace.
    Fact("hspace --simulate p,4,8T,64g,16 --machine-readable --disk-template drbd -l 8", 0,
         out="HTS_OK=1"),
    Fact("hspace --simulate p,4,8T,64g,16 --machine-readable --disk-template drbd -l 8", 0,
         out="HTS_CLUSTER_DSK=30517576\n"),
    Fact("hspace --simulate p,2,1t,4GB,2 --machine-readable", 0, out="HTS_CLUSTER_MEM=7628\n"),
    Fact("hspace --simulate p,2,1t,4GiB,2 --machine-readable", 0, out="HTS_CLUSTER_DSK=2097152\n"),
    Fact("hspace --simulate p,2,1t,4q,2", 1, err="not a size"),
    Fact("hspace --simulate q,2,1t,4g,2", 1, err="not an allocation policy"),
    Fact("hspace --simulate p,2", 1, err="has 2 parts instead of 5 to 7: allocation policy, number"),
    Fact("hspace --simulate p,x,1t,4g,2", 1, err="number of nodes is 'x', which is not a number"),
    Fact("hspace --simulate p,-2,1t,4g,2", 1, err="number of nodes is '-2'"),
    Fact("hspace --simulate p,2,1t,4g,2,4,Y", 1, err="exclusive storage .* is 'Y'"),
    Fact("hspace --simulate p,1,1t,4g,2 --simulate p,1,1t,8g,2 -pname,tmem -l 0", 0,
         err=r"node-01-001 +8192\n node-02-001 +4096\n"),
    Fact("hspace --simulate p,4,8T,64g,16,16,True --disk-template plain --machine-readable", 0,
         out="HTS_ALLOC_FAIL_REASON=FAILSPINDLES\nHTS_ALLOC_FAILSPINDLES_CNT=4\n"),
    Fact("hspace --simulate p,4,8T,64g,16,16,True --disk-template plain --machine-readable", 0,
         out="HTS_ALLOC_USAGE=NaN\n"),
    Fact("hspace --machine-readable --no-capacity-checks -t {hspace-tiered.data}", 0,
         out="HTS_TSPEC='131072,1048576,4,12=4 129984,1048320,4,12=2'"),
    Fact("hspace --machine-readable --no-capacity-checks -t {hspace-tiered.data}", 0, out="HTS_ALLOC_INSTANCES=6"),
    Fact("hspace -t {hspace-groups-one.data}", 0, out="  0 instances allocated"),
    Fact("hspace --accept-existing -t {hspace-groups-one.data}", 0, out="  2 instances allocated"),
    Fact("hspace --disk-template drbd --standard-alloc 1g,128,1 -t {lossy}", 0, out="  0 instances allocated"),
    Fact("hspace --disk-template drbd --standard-alloc 1g,128,1 --accept-existing -t {lossy}", 0,
         out=r"  [1-9]\d* instances allocated"),
    Fact("hspace --independent-groups -t {hspace-groups-one.data}", 0, out="  0 instances allocat"),
    Fact("hspace -t {hspace-existing.data} --machine-readable", 0, out="HTS_OK=1"),
    Fact("hspace -pname,pcnt -t {hspace-tiered.data}", 0, err="Tiered allocation status:\n Name"),
    Fact("hspace -v -v -v -t {lossy}", 0, err=r'Bad groups: \["g"\]'),
    Fact("hspace -v -v -v -t {n1-failure.data}", 0, err=r'Bad nodes: \["node-01-001","node-01-00'),
    Fact("hspace -v -t {pair}", 0, err="Note: Stripping common suffix of '.example.com' from names"),
    Fact("hspace -v -v --simulate p,3,1T,8g,4 -l 1", 0, err="Initial coefficients: overall 0.000"),
    Fact("hspace -v --simulate p,3,1T,8g,4 -l 1 --disk-template drbd", 0,
         err="Standard allocation map\n new-0 node-01-003 node-01-002 128 1024 1\n"),
    Fact("hspace --simulate p,3,1T,8g,4,4,True -l 1 --disk-template plain", 0,
         out=r"VCPU 48, SPN 12\.\n(.|\n)*CPU 1, SPN 1, using(.|\n)*- spindles usage efficiency: 100.00%"),
    Fact("hspace --machine-readable --no-capacity-checks -t {half-exclusive}", 0,
         out=r"HTS_INI_SPN_FREE=16\n(.|\n)*HTS_TRL_SPN_FREE=0\n(.|\n)*HTS_FIN_SPN_FREE=0\n"),
    Fact("hspace --machine-readable --no-capacity-checks -l 2 -t {half-exclusive}", 0,
         out=r"HTS_INI_SPN_FREE=16\n(.|\n)*HTS_FIN_SPN_FREE=7\n"),
    # hail.
    Fact("hail /dev/null", 1, err=MESSAGE + "Invalid JSON: /dev/null is empty; an allocator's message is"),
    Fact("hail {loads}", 1, err=MESSAGE + r"Invalid JSON: .*loads is not JSON \(.*\); an allocator's"),
    Fact("hail {latin}", 1, err=MESSAGE + "Invalid JSON: "),
    Fact("hail {array}", 1, err=r"(?m)^Error: invalid iallocator message: Unable to read JSObject, got array, in "),
    Fact("hail {nothing}", 1, err=r"(?m)^Error: invalid iallocator message: key 'request' not found, in .*; an allo"),
    Fact("hail {number}", 1, err=r"(?m)^Error: invalid iallocator message: key 'request': Unable to read JSObject"),
    Fact("hail {bad-name}", 1, err=r"(?m)^Error: invalid request dict: key 'name': Unable to read String, got"),
    Fact("hail {dance}", 1, err=r"(?m)^Error: Invalid request type 'dance'; use one of allocate, relocate"),
    Fact("hail /nonexistent", 1, err=r"(?m)^Error: /nonexistent: does not exist\n"),
    Fact("hail {hail-alloc-drbd.json}", 0, out=r'"success":true.*"result":\["node2","node1"\]'),
    Fact("hail {hail-reloc-drbd.json}", 0, out=r'"success":true.*"result":\["node1"\]'),
    Fact("hail {hail-node-evac.json}", 0,
         out="Request successful: 0 instances failed to move and 1 were moved successfully"),
    Fact("hail {hail-change-group.json}", 0,
         out="Request successful: 0 instances failed to move and 1 were moved successfully"),
    Fact("hail {hail-multialloc-dedicated.json}", 0, out=r'"result":\[\[\[.*\["node2-quarter"\]'),
    Fact("hail {hail-alloc-plain-tags.json}", 0, out='"success":false.*FailTags: 3'),
    Fact("hail {hail-alloc-plain-tags.json} --ignore-soft-errors", 0, out='"success":true'),
    Fact("hail --simulate p,8,8T,16g,16 {hail-alloc-drbd.json}", 0, out='"success":true'),
    Fact("hail -t {hspace-existing.data} {hail-alloc-drbd.json}", 0, out='"success":'),
    Fact("hail {hail-alloc-drbd.json} --static-kvm-node-memory 4096", 0, out='"success":true'),
    Fact("hail {hail-alloc-drbd.json} --static-kvm-node-memory 65536", 0, out="FailMem: "),
    Fact("hail -v -v -p {hail-alloc-drbd.json}", 0, err='Received request: .*"type":"allocate"'),
    Fact("hail -p {hail-alloc-drbd.json}", 0, err=r"Initial cluster status:(.|\n)*Final cluster s"),
    # mon-collector.
    *(Fact(f"mon-collector {name} unexpected", 1,
           err=r"(?m)^Error: This program takes exactly zero arguments, got 'unexpected'\n\Z")
      for name in ("drbd", "diskstats", "lv")),
    Fact("mon-collector drbd --no-such", 2, err=r"\ACommand line error: unrecognized option `--no-such'"),
    *(Fact(f"mon-collector {words} /nonexistent", 1,
           err=r"(?m)^Error: reading from file: /nonexistent: does not exist\n")
      for words in ("drbd -s", "drbd -p", "diskstats -f", "lv -f")),
    *(Fact(f"mon-collector {words} {{array-of-text}}", 1, err=r"(?m)^Error: Failed reading: .* line '\[")
      for words in ("diskstats -f", "lv -f")),
    Fact("mon-collector drbd -s {array-of-text}", 1, err=r"(?m)^Error: Failed reading: .* begin with a version"),
    Fact("mon-collector drbd -p /dev/null", 1, err=r"(?m)^Error: Can't get pairing info: Malformed JSON: "),
    Fact("mon-collector lv -f {array} -i {nothing-at-all}", 1,
         err=r"(?m)^Error: Unable to obtain the list of instances: Not a list of instances: "),
]  # fmt: skip


def run(words: str, folder: Path) -> int:
    """The exit code; files of `{names}` are made in the folder."""

    def made(found: re.Match[str]) -> str:
        name = found[1]
        if name not in FILES:
            return str(fixture_path(name))
        path = folder / name
        path.write_bytes(FILES[name].encode("latin-1"))
        return str(path)

    tool, *rest = re.sub(r"\{([^}]*)\}", made, words).split()
    try:
        return TOOLS[tool](rest)
    except SystemExit as err:
        return int(err.code or 0)


def assert_holds(pattern: str, found: str) -> None:
    if pattern.startswith("!"):
        assert not re.search(pattern[1:], found), found
    else:
        assert re.search(pattern, found), found


@pytest.mark.sampled(40)
@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.words)
def test_the_command_does_what_scripts_rely_on(
    fact: Fact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(fact.words, tmp_path)
    found = capsys.readouterr()
    assert code == fact.code, found
    assert_holds(fact.out, found.out)
    assert_holds(fact.err, found.err)


@pytest.mark.parametrize("name", ["hail-alloc-drbd", "hail-reloc-drbd", "hail-node-evac"])
def test_hail_saves_the_cluster_before_and_after(name: str, tmp_path: Path) -> None:
    assert run(f"hail {{{name}.json}} -S {tmp_path}/saved", tmp_path) == 0
    before, after = ((tmp_path / f"saved.{when}-ialloc").read_text() for when in ("pre", "post"))
    assert before != after
    assert run(f"hinfo -t {tmp_path}/saved.post-ialloc", tmp_path) == 0


def test_what_hbal_balanced_and_saved_is_balanced(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    assert run(f"hbal -t {{pair}} -S {saved} -C{tmp_path}/commands", tmp_path) == 0
    assert "gnt-instance" in (tmp_path / "commands").read_text()
    original = Path(f"{saved}.original").read_text()
    for section in FILES["pair"].split("\n\n")[:2]:
        assert all(line in original for line in section.splitlines())
    assert run(f"hcheck -t {saved}.balanced", tmp_path) == 0


def test_a_relocation_ignores_soft_errors_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Soft limits keep the only other node from becoming secondary: stopped instances need its memory."""
    message = json.loads(fixture_path("hail-reloc-drbd.json").read_text())
    wanted = message["request"]["relocate_from"]
    moved = message["instances"][message["request"]["name"]]
    for name, one in message["nodes"].items():
        if name not in (*wanted, *moved["nodes"]):
            down = {**moved, "nodes": [name], "disk_template": "plain", "admin_state": "down"}
            message["instances"][f"down-{name}"] = down | {"memory": int(one["free_memory"])}
    path = tmp_path / "message"
    path.write_text(json.dumps(message))
    found = []
    for more in ([], ["--ignore-soft-errors"]):
        assert hail.main([str(path), *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["success"])
    assert found == [False, True]


def test_the_differences_are_few() -> None:
    assert len(DIFFERENCES) <= 10
