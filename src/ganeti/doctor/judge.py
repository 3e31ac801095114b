"""Judge the facts of hosts: what keeps guests from running, what will fail later, and the command that repairs it.

Pure: facts in, findings out. The order of the findings is that of the areas; a host without a finding in an area
gets one `ok` line that shows what was examined.
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ganeti.model.host_facts import Finding, HostFacts, HostQuestion, Level, Space

AREAS = ("host", "network", "time", "storage", "virtualisation")

LOW_SPACE_MIB = 1024
LOW_SPACE_SHARE = 0.05
LEAST_MEMORY_MIB = 512
VOLATILE = frozenset({"tmpfs", "ramfs", "overlay"})
"""File systems that a restart of the host empties."""
USED_BY_NAME = 3
"""Flags that an administrator is shown by name; the rest is counted."""

_KVM_MODULES = {"vmx": "kvm_intel", "svm": "kvm_amd"}


def findings_of_host(question: HostQuestion, facts: HostFacts, name: str = "") -> list[Finding]:
    """Return the findings about one host, at least one for each area."""
    host = name or facts.name
    bad = [
        Finding(host, area, level, code, text, command)
        for area, rule in _RULES
        for level, code, text, command in rule(question, facts)
    ]
    good = [
        Finding(host, area, Level.OK, f"{area}-ok", text)
        for area, text in _summaries(question, facts).items()
        if not any(one.area == area for one in bad)
    ]
    return sorted([*bad, *good], key=lambda one: AREAS.index(one.area))


def findings_of_cluster(
    question: HostQuestion, hosts: Mapping[str, HostFacts], cpu_type: str = ""
) -> list[Finding]:
    """Return the findings about the differences between hosts, by name; `cpu_type` is the cluster's for kvm."""
    found = [*_mtus(question, hosts)]
    if question.runs_kvm:
        found += [*_versions(hosts), *_processors(hosts, cpu_type)]
    return found


Result = tuple[Level, str, str, str]
"""Level, code, text and command."""


def _host(_question: HostQuestion, facts: HostFacts) -> Iterator[Result]:
    if 0 < facts.memory_mib < LEAST_MEMORY_MIB:
        yield (
            Level.WARNING,
            "little-memory",
            f"the host has {facts.memory_mib} MiB of memory; the daemons alone need about {LEAST_MEMORY_MIB} MiB",
            "",
        )
    if facts.uncorrected_memory_errors:
        yield (
            Level.ERROR,
            "memory-errors",
            (
                f"the memory had {facts.uncorrected_memory_errors} uncorrected errors since the host started; move the"
                " instances away and replace the module"
            ),
            f"gnt-node evacuate {facts.name}",
        )
    if facts.has_systemd and facts.disabled_units:
        units = " ".join(facts.disabled_units)
        yield (
            Level.WARNING,
            "units-disabled",
            "these services do not start with the host: " + ", ".join(facts.disabled_units),
            f"systemctl enable --now {units}",
        )


def _network(question: HostQuestion, facts: HostFacts) -> Iterator[Result]:
    addresses = facts.name_addresses
    loopback = [
        one for one in addresses or () if ipaddress.ip_address(one.partition("%")[0]).is_loopback
    ]
    if addresses is not None and facts.name.partition(".")[0] == "localhost":
        yield (
            Level.ERROR,
            "no-name",
            "the host is called localhost; each node needs a name of its own, with the cluster's domain",
            "hostnamectl set-hostname NAME.DOMAIN",
        )
    elif addresses == ():
        yield (
            Level.ERROR,
            "name-without-address",
            f"the host's name {facts.name} has no address; add it to the DNS or to /etc/hosts",
            f'echo "ADDRESS {facts.name}" >>/etc/hosts',
        )
    elif loopback:
        yield (
            Level.ERROR,
            "name-is-loopback",
            (
                f"the host's name {facts.name} resolves to {loopback[0]}, which no other node reaches; give the"
                " name the host's own address in /etc/hosts"
            ),
            "editor /etc/hosts",
        )
    for name in question.links:
        link = facts.links.get(name)
        if link is None:
            yield (
                Level.ERROR,
                "link-missing",
                f"the interface {name}, to which guests are connected, does not exist",
                f"ip link add {name} type bridge && ip link set {name} up",
            )
        elif not link.is_up:
            yield (
                Level.ERROR,
                "link-down",
                f"the interface {name} is down",
                f"ip link set {name} up",
            )
    if facts.filters_bridges and any(one.is_bridge for one in facts.links.values()):
        yield (
            Level.WARNING,
            "bridge-filtered",
            "the host's packet filter also sees the frames of guests on bridges",
            "sysctl -w net.bridge.bridge-nf-call-iptables=0",
        )
    for port in facts.ports_in_use:
        yield (
            Level.ERROR,
            "port-in-use",
            f"another program listens on TCP port {port}, which a daemon of the cluster needs",
            f"ss -lptn 'sport = :{port}'",
        )


def _time(_question: HostQuestion, facts: HostFacts) -> Iterator[Result]:
    if facts.is_clock_synchronised is False and facts.time_service:
        yield (
            Level.WARNING,
            "clock-not-synchronised",
            f"{facts.time_service} runs, but the clock is not synchronised; it may have no server that answers",
            "chronyc sources" if facts.time_service == "chronyd" else "timedatectl timesync-status",
        )
    elif facts.is_clock_synchronised is False:
        yield (
            Level.ERROR,
            "no-time-service",
            "no program keeps the clock right; certificates and logs of several nodes need the same time",
            "apt-get install chrony",
        )


def _storage(question: HostQuestion, facts: HostFacts) -> Iterator[Result]:
    group = question.volume_group
    if group and facts.lvm_problem:
        yield Level.ERROR, "no-lvm", f"LVM: {facts.lvm_problem}", "apt-get install lvm2"
    elif group and group not in facts.volume_groups:
        others = ", ".join(sorted(facts.volume_groups)) or "none"
        yield (
            Level.ERROR,
            "no-volume-group",
            f"the volume group {group} does not exist (existing groups: {others})",
            f"vgcreate {group} DEVICE",
        )
    if question.uses_drbd and facts.drbd_problem:
        missing = "does not exist" in facts.drbd_problem
        yield (
            Level.ERROR,
            "no-drbd",
            f"DRBD: {facts.drbd_problem}",
            "apt-get install drbd-utils" if missing else "modprobe drbd",
        )
    for name in facts.degraded_raids:
        yield (
            Level.ERROR,
            "raid-degraded",
            f"the software RAID {name} has lost a device; replace it before another one fails",
            f"mdadm --detail /dev/{name}",
        )
    for directory, space in facts.spaces.items():
        yield from _space(directory, space)


def _space(directory: str, space: Space) -> Iterator[Result]:
    if space.free < max(LOW_SPACE_MIB, int(space.total * LOW_SPACE_SHARE)):
        yield (
            Level.ERROR if space.free < LOW_SPACE_MIB // 4 else Level.WARNING,
            "little-space",
            f"the file system of {directory} has {space.free} of {space.total} MiB left",
            f"du -xh --max-depth=2 {directory} | sort -h | tail",
        )
    if space.kind in VOLATILE:
        yield (
            Level.WARNING,
            "volatile-directory",
            f"{directory} is on a {space.kind}, which a restart of the host empties; mount a disk there",
            "",
        )


def _virtualisation(question: HostQuestion, facts: HostFacts) -> Iterator[Result]:
    if not question.runs_kvm:
        return
    if facts.qemu_problem:
        yield (
            Level.ERROR,
            "no-qemu",
            f"QEMU: {facts.qemu_problem}",
            "apt-get install qemu-system-x86 qemu-utils",
        )
    if facts.kvm_problem:
        yield from _kvm(facts)
    if not facts.has_tun:
        yield (
            Level.ERROR,
            "no-tun",
            "/dev/net/tun does not exist; guests get no network",
            "modprobe tun",
        )
    if not facts.has_vhost_net:
        yield (
            Level.WARNING,
            "no-vhost-net",
            "/dev/vhost-net does not exist; the network of guests needs more processor time",
            "modprobe vhost_net",
        )


def _kvm(facts: HostFacts) -> Iterator[Result]:
    module = next((_KVM_MODULES[one] for one in _KVM_MODULES if one in facts.cpu_flags), "")
    if not module:
        yield (
            Level.WARNING,
            "no-hardware-virtualisation",
            (
                "the processor offers no hardware virtualisation, so guests run by software emulation, many times slower;"
                " switch on VT-x or AMD-V in the firmware's setup (in a virtual machine: nested virtualisation)"
            ),
            "",
        )
    else:
        yield (
            Level.ERROR,
            "kvm-unusable",
            f"KVM does not work: {facts.kvm_problem}",
            f"modprobe {module}",
        )


_RULES = (
    ("host", _host),
    ("network", _network),
    ("time", _time),
    ("storage", _storage),
    ("virtualisation", _virtualisation),
)


def _summaries(question: HostQuestion, facts: HostFacts) -> dict[str, str]:
    """Return what was examined in each area, for areas without a problem."""
    links = ", guests on " + ", ".join(question.links) if question.links else ""
    clock = "synchronised" if facts.is_clock_synchronised else "the kernel does not tell its state"
    service = f" by {facts.time_service}" if facts.time_service else ""
    groups = [f"{question.volume_group} {facts.volume_groups[question.volume_group]} MiB free"] if (
        question.volume_group in facts.volume_groups
    ) else []  # fmt: skip
    spaces = [f"{path} {space.free} MiB free" for path, space in facts.spaces.items()]
    drbd = [f"DRBD {facts.drbd_version}"] if facts.drbd_version else []
    return {
        "host": ", ".join(
            one
            for one in (
                facts.system,
                f"Linux {facts.kernel}",
                f"{facts.memory_mib} MiB of memory",
                f"{facts.cpus} processors",
            )
            if one
        ),
        "network": f"{facts.name} is " + (", ".join(facts.name_addresses or ()) or "a virtual node") + links,
        "time": f"clock: {clock}{service}",
        "storage": ", ".join([*groups, *drbd, *spaces]) or "nothing is configured",
        "virtualisation": f"KVM works, QEMU {facts.qemu_version}" if question.runs_kvm else "none is needed",
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Groups:
    """Hosts by one property, the most frequent value first."""

    by_value: Sequence[tuple[str, list[str]]]

    @classmethod
    def of(cls, values: Mapping[str, str]) -> "_Groups":
        groups: dict[str, list[str]] = {}
        for host, value in sorted(values.items()):
            if value:
                groups.setdefault(value, []).append(host)
        return cls(sorted(groups.items(), key=lambda one: (-len(one[1]), one[0])))

    def __str__(self) -> str:
        return "; ".join(f"{value} on {_some(hosts)}" for value, hosts in self.by_value)


def _some(names: Sequence[str]) -> str:
    """Return a few of the names, and the number of the others."""
    if len(names) <= USED_BY_NAME + 1:
        return ", ".join(names)
    return f"{', '.join(names[:USED_BY_NAME])} and {len(names) - USED_BY_NAME} more"


def _mtus(question: HostQuestion, hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    for link in question.links:
        groups = _Groups.of(
            {
                host: str(facts.links[link].mtu)
                for host, facts in hosts.items()
                if link in facts.links
            }
        )
        if len(groups.by_value) > 1:
            yield Finding(
                "",
                "network",
                Level.WARNING,
                "mtu-differs",
                f"the MTU of {link} differs: {groups}. A migrated guest may lose large packets",
                f"ip link set {link} mtu {groups.by_value[0][0]}",
            )


def _versions(hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    groups = _Groups.of({host: facts.qemu_version for host, facts in hosts.items()})
    if len(groups.by_value) > 1:
        yield Finding(
            "",
            "virtualisation",
            Level.WARNING,
            "qemu-differs",
            f"the versions of QEMU differ: {groups}. A guest migrates safely to the same or a newer version only",
            "apt-get install --only-upgrade qemu-system-x86",
        )


def _processors(hosts: Mapping[str, HostFacts], cpu_type: str) -> Iterator[Finding]:
    known = {host: set(facts.cpu_flags) for host, facts in hosts.items() if facts.cpu_flags}
    common = set.intersection(*known.values()) if known else set()
    extra = {host: sorted(flags - common) for host, flags in known.items() if flags - common}
    if not extra or cpu_type not in {"host", "max"}:
        return  # Other types give all guests the same processor, wherever they run.
    host, flags = max(sorted(extra.items()), key=lambda one: len(one[1]))
    lacking = [name for name in sorted(known) if not set(flags) <= known[name]]
    yield Finding(
        "",
        "virtualisation",
        Level.WARNING,
        "processors-differ",
        f"cpu_type is {cpu_type}, and the processors differ: {host} has {_some(flags)}, which {_some(lacking)} lack."
        " A guest that uses them fails when it migrates there",
        "gnt-cluster modify -H kvm:cpu_type=x86-64-v2-AES",
    )
