"""The questions of `gnt-cluster init` on a terminal: each has a line of explanation, and a default from this host.

`Host` has the facts. The questions decide without input or output; `Interview` asks them.
"""

import argparse
import shlex
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ganeti.base.addresses import address_of_environment, is_address, is_loopback
from ganeti.base.errors import InputError
from ganeti.base.identifiers import host_name
from ganeti.base.sizes import format_mib
from ganeti.base.state_kinds import EMBEDDED, STATE_KINDS
from ganeti.cli.errors import NeedsConfirmation
from ganeti.model.host_facts import HostFacts, HostQuestion

NONE, LOOPBACK = "none", "loopback"
FILE_STORAGE = "/srv/ganeti/file-storage"


@dataclass(frozen=True)
class Host:
    """What the questions need to know about this host."""

    facts: HostFacts
    interfaces: tuple[str, ...] = ()
    address: str = ""
    """The address by which other hosts reach this one; '' if it is unknown."""
    own: str = ""
    """The address of this host's name: LOOPBACK, or '' without one."""
    resolve: Callable[[str], str | None] = lambda _name: None
    """Return the address of a host name, LOOPBACK, or None."""

    @property
    def bridges(self) -> list[str]:
        """Return the bridges, those that are up first."""
        links = self.facts.links
        found = [name for name in self.interfaces if name in links and links[name].is_bridge]
        return sorted(found, key=lambda name: not links[name].is_up)

    @property
    def volume_groups(self) -> list[str]:
        """Return the volume groups, the one with the most free space first."""
        free = self.facts.volume_groups
        return sorted(free, key=lambda name: (-free[name], name))


class Question(NamedTuple):
    """One question; its answer is the value of an option."""

    dest: str
    """The attribute of the command line that has the value."""
    flag: str
    """The option, or '' for the argument."""
    text: str
    why: str
    default: str = ""
    choices: tuple[str, ...] = ()
    check: Callable[[str], str] = lambda text: text
    """Return the value; InputError."""
    is_list: bool = False
    """True if argparse collects the option's values."""
    form: str = "{}"
    """The value in the command line."""

    def value(self, answer: str) -> str:
        """Return the value for an answer; InputError."""
        text = answer.strip() or self.default
        if self.choices and text not in self.choices:
            raise InputError(f"{text!r:.60} is not one of {', '.join(self.choices)}", self.text)
        if not text:
            raise InputError("needs an answer", self.text)
        return self.check(text)


def questions(host: Host, args: argparse.Namespace) -> Iterator[Question]:
    """Yield the questions that the command line leaves open; later ones depend on the answers, which are in `args`."""
    if args.cluster_name is None:
        yield _name(host)
    if args.master_ip is None and host.resolve(args.cluster_name) in (None, LOOPBACK):
        yield _cluster_address(args.cluster_name)
    if args.primary_ip is None and host.own in ("", LOOPBACK):
        yield _own_address(host)
    if args.master_netdev is None:
        yield _device(host)
    if args.nicparams is None and host.bridges:
        yield _bridge(host)
    if args.enabled_hypervisors is None:
        yield _hypervisor(host)
    if args.vg_name is None:
        yield _volume_group(host)
    if args.file_storage_dir is None:
        yield _directory()
    if args.state is None:
        yield _state()


def _name(host: Host) -> Question:
    def check(text: str) -> str:
        name = host_name(text, "cluster_name")
        if name == host.facts.name:
            raise InputError(
                f"{name} is the name of this node; choose another name", "cluster_name"
            )
        return name

    _, _, domain = host.facts.name.partition(".")
    suggested = f"cluster.{domain}" if domain else ""
    return Question(
        "cluster_name", "", "Name of the cluster",
        "A host name of its own; its address follows the master.",
        suggested if suggested and host.resolve(suggested) else "", check=check,
    )  # fmt: skip


def _address(text: str) -> str:
    if not is_address(text) or is_loopback(text):
        raise InputError(f"{text!r:.60} is not an address of the network", "address")
    return text


def _cluster_address(name: str) -> Question:
    why = f"The name {name} has no address. Choose a free address of the network of this node."
    return Question("master_ip", "--master-ip", "Address of the cluster", why, check=_address)


def _own_address(host: Host) -> Question:
    what = "has only loopback addresses" if host.own else "has no address"
    why = f"The name {host.facts.name} {what}; other nodes use this address instead."
    return Question(
        "primary_ip", "--primary-ip", "Address of this node", why, host.address, check=_address
    )


def _device(host: Host) -> Question:
    default = next(iter(host.bridges), next(iter(host.interfaces), NONE))
    return Question(
        "master_netdev", "--master-netdev", "Network interface of the cluster's address",
        f"The master adds the cluster's address to it; {NONE}: another system manages the address.",
        default, (*host.interfaces, NONE), lambda text: "" if text == NONE else text,
    )  # fmt: skip


def _bridge(host: Host) -> Question:
    return Question(
        "nicparams", "-N", "Bridge of guests", "The interfaces of new guests are connected to it.",
        host.bridges[0], tuple(host.bridges), lambda text: f"mode=bridged,link={text}", is_list=True,
    )  # fmt: skip


def _hypervisor(host: Host) -> Question:
    from ganeti.model.hypervisors import HYPERVISORS

    real, *_, simulated = HYPERVISORS
    problem = host.facts.kvm_problem or host.facts.qemu_problem
    why = f"{simulated} only pretends to run guests."
    if problem:
        why = f"{real} is not usable on this host: {problem}. {why}"
    return Question(
        "enabled_hypervisors", "--enabled-hypervisors", "Hypervisor", why,
        simulated if problem else real, tuple(HYPERVISORS),
    )  # fmt: skip


def _volume_group(host: Host) -> Question:
    free = host.facts.volume_groups
    listed = ", ".join(
        f"{name} ({format_mib(free[name], 'h')} free)" for name in host.volume_groups
    )
    why = f"LVM keeps disks of guests as logical volumes: {listed}." if listed else (
        f"This host has no volume group ({host.facts.lvm_problem or 'LVM has none'}); disks are files then."
    )  # fmt: skip
    return Question(
        "vg_name", "--vg-name", "Volume group", why, next(iter(host.volume_groups), NONE),
        (*host.volume_groups, NONE), lambda text: "" if text == NONE else text,
    )  # fmt: skip


def _directory() -> Question:
    def check(text: str) -> str:
        if not Path(text).is_absolute() or ".." in text.split("/"):
            raise InputError("must be an absolute path without '..'", "file_storage_dir")
        return text

    return Question(
        "file_storage_dir", "--file-storage-dir", "Directory of disks in files",
        "Each node keeps disks of the template 'file' below it.", FILE_STORAGE, check=check,
    )  # fmt: skip


def _state() -> Question:
    why = "; ".join(f"{name}: {one.summary}" for name, one in STATE_KINDS.items()) + "."
    return Question("state", "--state", "Store of the state", why, EMBEDDED, tuple(STATE_KINDS))


def templates(host: Host, vg_name: str) -> str:
    """Return the disk templates that fit the answers; the first is the default."""
    volumes = ["plain"] if vg_name else []
    if vg_name and not host.facts.drbd_problem:
        volumes.insert(0, "drbd")
    return ",".join([*volumes, "file", "diskless"])


class Interview:
    """Asks the questions, and knows the command line without them."""

    def __init__(
        self, host: Host, ask: Callable[[str], str], show: Callable[[str], object]
    ) -> None:
        self._host, self._ask, self._show = host, ask, show
        self.words: list[str] = []
        """The options of the answers."""

    def fill(self, args: argparse.Namespace) -> None:
        """Ask until each open question has a valid answer, and enter the answers; NeedsConfirmation at the end of input."""
        for question in questions(self._host, args):
            value = self._answer(question)
            setattr(args, question.dest, [value] if question.is_list else value)
            if question.flag:
                self.words += _option(question.flag, value)
        if args.enabled_disk_templates is None:
            args.enabled_disk_templates = templates(self._host, args.vg_name)
            self.words += _option("--enabled-disk-templates", args.enabled_disk_templates)

    def _answer(self, question: Question) -> str:
        self._show(f"\n{question.why}")
        offered = f" ({', '.join(question.choices)})" if question.choices else ""
        default = f" [{question.default}]" if question.default else ""
        while True:
            answer = self._ask(f"{question.text}{offered}{default}: ")
            try:
                return question.value(answer)
            except InputError as err:
                self._show(f"  {err.message}")

    def administrator(self) -> str:
        """Return the name of the first user of the console; '' for none."""
        return "" if (name := self._answer(_ADMINISTRATOR)) == NONE else name

    def is_confirmed(self) -> bool:
        """Return whether the answer to the last question is yes."""
        return self._answer(_CONFIRMATION) == "y"

    def command(self, args: argparse.Namespace) -> str:
        """Return the command line that needs no questions."""
        return shlex.join(
            ["gnt-cluster", "init", *args.given_words, *self.words, args.cluster_name]
        )


def _user_name(text: str) -> str:
    if not text.isascii() or not text.isprintable() or set(text) & set(" :#,"):
        raise InputError(f"{text!r:.60} is not a name of a user", "administrator")
    return text


_ADMINISTRATOR = Question(
    "", "", "First administrator of the web console",
    f"A user with all rights, with a password of its own; {NONE}: 'gnt-cluster console-link' logs in without a user.",
    NONE, check=_user_name,
)  # fmt: skip
_CONFIRMATION = Question(
    "", "", "Create the cluster", "All settings except the name of this node can be changed later.", "y", ("y", "n")
)  # fmt: skip


def _option(flag: str, value: str) -> list[str]:
    return [f"{flag}={value}"] if flag.startswith("--") else [flag, value]


def ask_on_terminal(prompt: str) -> str:
    """Return a line of the user; NeedsConfirmation at the end of the input."""
    try:
        return input(prompt)
    except EOFError:
        raise NeedsConfirmation("Cancelled; nothing was changed.") from None


def this_host() -> Host:
    """Return the facts of this host."""
    import asyncio

    from ganeti.doctor.gather import host_facts

    names = tuple(name for _, name in socket.if_nameindex() if name != "lo")
    question = HostQuestion(volume_group=NONE, uses_drbd=True, links=names)
    facts = asyncio.run(host_facts(question))
    own = address_of_environment() or _resolved(facts.name) or ""
    return Host(facts, names, _outward_address(), own, _resolved)


def _outward_address() -> str:
    """Return the address of the default route; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _resolved(name: str) -> str | None:
    """Return an address of a name that other hosts reach, LOOPBACK, or None without an address."""
    try:
        found = [str(one[4][0]) for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        return None
    return next((one for one in found if not is_loopback(one)), LOOPBACK)
