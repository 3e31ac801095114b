"""What Debian's commands print against Ganeti 3.0.2, recorded there; names, sizes and times are made alike."""

import re

_ALIKE = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"\w{3} \w{3} +\d+ [\d:]{8} \d{4}", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"(node\d)\.vcluster\.test", "NODE"),
    (r"cluster\.vcluster\.test", "CLUSTER"),
    (r"\b\d+(\.\d+)?[MG]\b", "SIZE"),
    (r"job \d+", "job N"),
    (r"Serial number: \d+", "Serial number: N"),
    (r" +", " "),
)


def alike(text: str) -> list[str]:
    """The lines of an output, without what differs from run to run and what jobs say in their own words."""
    for pattern, word in _ALIKE:
        text = re.sub(pattern, word, text)
    return [line.rstrip() for line in text.splitlines() if not line.startswith("TIME ")]


def keys(lines: list[str]) -> list[str]:
    """The keys of a tree, in their order."""
    return [line.partition(":")[0] for line in lines]


WHOLE: dict[str, list[str]] = {
    "gnt-filter list": ["UUID Watermark Priority Predicates Action ReasonTrail"],
    "gnt-network list": ["Network Subnet Gateway MacPrefix GroupList Tags"],
    "gnt-os list": ["Name", "noop"],
    "gnt-instance list cap1.peer": [
        "Instance Hypervisor OS Primary_node Status Memory",
        "cap1.peer fake noop NODE ADMIN_down -",
    ],
    "gnt-instance list -o name,status,admin_state,oper_state,pnode,snodes,be/memory,be/vcpus,"
    "disk_usage,nic.ips,tags,ctime cap1.peer": [
        (
            "Instance Status InstanceState Running Primary_node Secondary_Nodes ConfigMaxMem"
            " ConfigVCPUs DiskUsage NIC_IPs Tags CTime"
        ),
        "cap1.peer ADMIN_down down N NODE SIZE 1 SIZE tag1 TIME",
    ],
    "gnt-instance startup cap1.peer": ["Waiting for job N for cap1.peer ..."],
    "gnt-instance console --show-cmd cap1.peer": ["Console not available for fake hypervisor"],
    "gnt-instance shutdown cap1.peer": ["Waiting for job N for cap1.peer ..."],
    "gnt-node list node1": [
        "Node DTotal DFree MTotal MNode MFree Pinst Sinst",
        "NODE SIZE SIZE SIZE SIZE SIZE 1 0",
    ],
    "gnt-instance info cap1.peer": [
        "- Instance name: cap1.peer",
        " UUID: UUID",
        " Serial number: N",
        " Creation time: TIME",
        " Modification time: TIME",
        " State: configured to be down, actual state is down",
        " Nodes:",
        " - primary: NODE",
        " group: default (UUID UUID)",
        " - secondaries:",
        " Operating system: noop",
        " Operating system parameters:",
        " Allocated network port: None",
        " Hypervisor: fake",
        " Hypervisor parameters:",
        " migration_mode: default (live)",
        " Back-end parameters:",
        " always_failover: default (False)",
        " auto_balance: default (True)",
        " maxmem: 16",
        " memory: default (16)",
        " minmem: 16",
        " spindle_use: default (1)",
        " vcpus: 1",
        " NICs:",
        " Disk template: diskless",
        " Disks:",
    ],
}
"""All that is printed, in this order."""

KEYS: dict[str, list[str]] = {
    "gnt-cluster info": [
        *("Cluster name", "Cluster UUID", "Creation time", "Modification time", "Master node"),
        *("Architecture (this node)", "Tags", "Default hypervisor", "Enabled hypervisors"),
        *("Hypervisor parameters", " fake", " migration_mode"),
        *("OS-specific hypervisor parameters", "OS parameters", "Hidden OSes", "Blacklisted OSes"),
        *("Cluster parameters", " candidate pool size"),
        " maximal number of jobs running simultaneously",
        " maximal number of jobs simultaneously tracked by the scheduler",
        *(" mac prefix", " master netdev", " master netmask"),
        *(" use external master IP address setup script", " lvm volume group"),
    ],
    "gnt-node info node1": [
        *("- Node name", " primary ip", " secondary ip", " master candidate", " drained"),
        *(" offline", " master_capable", " vm_capable", " primary for instances", " - cap1.peer"),
    ],
}
"""The first keys of what is printed."""
