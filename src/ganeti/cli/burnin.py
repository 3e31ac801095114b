"""burnin: create instances, and test every operation on them."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, InputError, PrereqError
from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import Parser, say
from ganeti.cli.command import EXIT_FAILURE, run_guarded
from ganeti.cli.jobs import submit_many, wait_for_result, with_job_options
from ganeti.cli.key_values import key_values, texts
from ganeti.cli.output import format_table
from ganeti.clients.luxi import LuxiClient

if TYPE_CHECKING:  # slow to import
    from ganeti.cli.burnin_steps import BurninOptions, Guest, Step
    from ganeti.model.opcodes import OpCode

PROG = "burnin"
CONFD = "confd"
OPTIONAL = (
    ("startstop", "do not stop and start the instances"),
    ("runtime-memory", "do not change the memory of running guests"),
    ("replace1", "do not replace disks on the same nodes"),
    ("replace2", "do not change the secondary node"),
    ("failover", "do not fail the instances over"),
    ("migrate", "do not migrate the instances"),
    ("move", "do not move the instances"),
    ("importexport", "do not export and import the instances"),
    ("reinstall", "do not reinstall the instances"),
    ("reboot", "do not reboot the instances"),
    ("renamesame", "do not rename the instances to their own names"),
    ("add-nics", "add no network interfaces"),
    ("activate-disks", "do not activate and deactivate disks"),
    ("add-disks", "add no disks"),
    (CONFD, "do not ask the query daemons"),
)
"""Steps that `--no-NAME` leaves out."""
REBOOTS = ("soft", "hard", "full")
HTTP_AGAIN_S = 0.5


@dataclass
class Trial:
    """The instances of one run; a tag identifies them."""

    client: LuxiClient
    options: "BurninOptions"
    args: argparse.Namespace
    nodes: Sequence[str]
    tag: str
    times: list[tuple[str, str]] = field(default_factory=list)

    def run(self, names: Sequence[str]) -> None:
        """Run all steps; raise the GanetiError of the first failed step."""
        from ganeti.cli.burnin_steps import steps

        with self._timed("Creating instances"):
            made = []
            for number, name in enumerate(names):
                around = [*self.nodes[number % len(self.nodes) :], *self.nodes]
                made.append((name, [self.options.create(name, self.tag, around)]))
            self._jobs(made)
            self._check_alive(names)
        for step in steps(self.options, len(self.nodes)):
            self._step(step, names)
        if CONFD not in self.options.without:
            with self._timed("Asking the query daemons"):
                ask_confd(self.client)

    def remove(self) -> None:
        """Remove the instances of this run that exist; raise GanetiError."""
        from ganeti.model.opcodes.instance import OpInstanceRemove

        found = [guest.name for guest in self.guests()]
        if found:
            with self._timed("Removing instances"):
                self._jobs(
                    [
                        (name, [OpInstanceRemove(instance_name=name, ignore_failures=True)])
                        for name in found
                    ]
                )

    def guests(self) -> "list[Guest]":
        """Return the present state of the instances."""
        from ganeti.cli.burnin_steps import Guest

        fields = ("name", "pnode", "snodes")
        answer = self.client.query("instance", fields, ["=[]", "tags", self.tag])
        found = []
        for number, row in enumerate(answer["data"]):
            name, primary, secondaries = (value for _status, value in row)
            around = [*self.nodes[number % len(self.nodes) :], *self.nodes]
            others = [one for one in dict.fromkeys(around) if one not in (primary, *secondaries)]
            found.append(Guest(name, self.tag, primary, next(iter(secondaries), None), (*others,)))
        return found

    def _step(self, step: "Step", names: Sequence[str]) -> None:
        with self._timed(step.title):
            self._jobs([(guest.name, step.ops(self.options, guest)) for guest in self.guests()])
            if step.starts:
                self._check_alive(names)

    def _jobs(self, jobs: "Sequence[tuple[str, Sequence[OpCode]]]") -> None:
        """Run a job for each instance, all at once with `--parallel`; ExecError names the failed ones."""
        together = len(jobs) if self.args.parallel else 1
        failed = []
        for start in range(0, len(jobs), together):
            part = jobs[start : start + together]
            answers = submit_many(
                self.client, [[with_job_options(op, self.args) for op in ops] for _, ops in part]
            )
            for (name, _ops), (is_accepted, what) in zip(part, answers, strict=True):
                try:
                    if not is_accepted:
                        raise ExecError(f"its job was refused: {what}")
                    wait_for_result(self.client, int(what), is_quiet=not self.args.verbose)
                except GanetiError as err:
                    failed.append(f"{name}: {err.message}")
            if failed:
                raise ExecError("\n".join(failed))

    def _check_alive(self, names: Sequence[str]) -> None:
        if self.args.http_check:
            for name in names:
                wait_for_http(name, self.args.net_timeout)

    @contextmanager
    def _timed(self, title: str) -> Iterator[None]:
        say(f"- {title}", flush=True)
        begun = time.monotonic()
        try:
            yield
        except GanetiError:
            self.times.append((title, "failed"))
            raise
        self.times.append((title, f"{time.monotonic() - begun:.1f} s"))


def wait_for_http(name: str, limit_s: float, *, port: int = 80) -> None:
    """Wait until the guest serves its own name as `/hostname.txt`; ExecError after the time limit."""
    import http.client

    end = time.monotonic() + limit_s
    while True:
        asked = http.client.HTTPConnection(name, port, timeout=max(1.0, limit_s))
        try:
            asked.request("GET", "/hostname.txt")
            said = asked.getresponse().read(1024).decode(errors="replace").strip()
            why = "" if said == name else f"the guest returned {said!r:.80}"
        except (OSError, http.client.HTTPException) as err:
            why = str(err) or type(err).__name__
        finally:
            asked.close()
        if not why:
            return
        if time.monotonic() >= end:
            raise ExecError(f"{name} does not serve http://{name}/hostname.txt: {why}")
        time.sleep(HTTP_AGAIN_S)


def ask_confd(client: LuxiClient) -> None:
    """Compare the answers of the candidates' query daemons with the master's state; raise GanetiError."""
    import asyncio

    from ganeti.cli.confd_client import client_of_node
    from ganeti.protocols.confd import NodeRole, QueryType

    master: str = client.cluster_info()["master"]
    confd = client_of_node()

    async def ask() -> None:
        for title, kind, query, wanted in (
            ("Ping", QueryType.PING, None, None),
            ("Master", QueryType.MASTER, None, master),
            ("Node role for master", QueryType.NODE_ROLE_BY_NAME, master, NodeRole.MASTER),
        ):
            answer = (await confd.ask(kind, query)).answer
            if answer.status or (wanted is not None and answer.answer != wanted):
                raise ExecError(
                    f"{title}: confd returned {answer.answer!r:.200} instead of {wanted!r}"
                )
            say(f"  * {title}: OK")

    asyncio.run(ask())


class _Value(NamedTuple):
    flags: tuple[str, ...]
    metavar: str
    meaning: str
    default: str | None = None


_VALUES = (
    _Value(("-o", "--os"), "OS", "OS definition of the instances"),
    _Value(("--disk-size",), "SIZE,...", "sizes of the disks", "1G"),
    _Value(("--disk-growth",), "SIZE,...", "sizes by which the disks grow", "128m"),
    _Value(
        ("--mem-size",), "SIZE", "memory of the instances; replaces --maxmem-size and --minmem-size"
    ),
    _Value(("--maxmem-size",), "SIZE", "memory of the instances at their start", "256"),
    _Value(("--minmem-size",), "SIZE", "lower limit of the instances' memory", "128"),
    _Value(("--vcpu-count",), "N", "virtual processors", "3"),
    _Value(("-H", "--hypervisor"), "NAME[:k=v,...]", "hypervisor, and its parameters"),
    _Value(("--reboot-types",), "TYPE,...", "types of reboots to test", ",".join(REBOOTS)),
    _Value(("--rename",), "NAME", "rename the instance to this name and back; for one instance"),
    _Value(
        ("-n", "--nodes"), "NODE,...", "nodes to use (default: all that are online and not drained)"
    ),
    _Value(("-I", "--iallocator"), "NAME", "allocator that chooses the nodes"),
    _Value(("--net-timeout",), "SECONDS", "with -C: time limit for the answer of a guest", "15"),
)
_FLAGS = (
    (("--no-nics",), "create the instances without network interfaces"),
    (("-p", "--parallel"), "run each step on all instances at once"),
    (("-C", "--http-check"), "wait after each start until http://NAME/hostname.txt returns NAME"),
    (("-K", "--keep-instances"), "keep the instances at the end"),
    (("-e", "--early-release"), "remove old copies of disks before the new ones are filled"),
    (("--no-ip-check",), "accept addresses that already answer"),
    (("--no-name-check",), "accept names that do not resolve"),
    (("-v", "--verbose"), "show the logs of the jobs"),
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from ganeti.model.disk_templates import DISK_TEMPLATES

    rows = DISK_TEMPLATES.values()
    found = Parser(
        prog=PROG,
        description="Test a cluster: create instances, test every operation on them, and remove them."
        " The first failure stops the test with exit code 1, and the instances are removed nevertheless."
        " Existing instances are not changed.",
    )
    found.add_argument("instances", nargs="+", metavar="NAME", help="names of new instances")
    for one in _VALUES:
        default = "" if one.default is None else f" ({one.default})"
        found.add_argument(
            *one.flags, metavar=one.metavar, default=one.default, help=one.meaning + default
        )
    found.add_argument(
        *("-t", "--disk-template"),
        choices=[row.name for row in rows if not (row.only_adopts or row.by_provider)],
        default="drbd",
        help="disk template (drbd)",
    )
    found.add_argument(
        *("-O", "--os-parameters"),
        action="append",
        metavar="k=v,...",
        help="parameters of the OS definition",
    )
    for flags, meaning in _FLAGS:
        found.add_argument(*flags, action="store_true", help=meaning)
    for name, meaning in OPTIONAL:
        found.add_argument(
            f"--no-{name}", dest="without", action="append_const", const=name, help=meaning
        )
    found.add_argument("-d", "--debug", action="count", default=0, help="debug level of the jobs")
    found.add_argument("--reason", metavar="TEXT", help="reason, stored with the jobs")
    return found


def options_of(args: argparse.Namespace) -> "BurninOptions":
    """Return the options of the command line; raise InputError."""
    from ganeti.cli.burnin_steps import BurninOptions
    from ganeti.model.disk_templates import DISK_TEMPLATES
    from ganeti.model.names import RebootType

    if not args.os:
        raise InputError("pass the OS definition to install as -o NAME", "--os")
    has_disks = DISK_TEMPLATES[args.disk_template].has_disks
    sizes = _sizes(args.disk_size, "--disk-size") if has_disks else ()
    growths = _sizes(args.disk_growth, "--disk-growth") if has_disks else ()
    if len(sizes) != len(growths):
        raise InputError("must have as many values as --disk-size", "--disk-growth")
    if len(set(args.instances)) != len(args.instances):
        raise InputError("a name occurs twice", "instances")
    if args.rename and len(args.instances) != 1:
        raise InputError("is only for one instance", "--rename")
    if args.iallocator and args.nodes:
        raise InputError("pass nodes or an allocator, not both", "--iallocator")
    reboots = args.reboot_types.split(",")
    if wrong := [one for one in reboots if one not in REBOOTS]:
        raise InputError(f"{wrong[0]!r:.80} is not one of {', '.join(REBOOTS)}", "--reboot-types")
    hypervisor, _, hvparams = (args.hypervisor or "").partition(":")
    return BurninOptions(
        os=args.os,
        template=args.disk_template,
        sizes=sizes,
        growths=growths,
        maxmem=parse_mib(args.mem_size or args.maxmem_size, "--maxmem-size"),
        minmem=parse_mib(args.mem_size or args.minmem_size, "--minmem-size"),
        vcpus=_number(args.vcpu_count, "--vcpu-count"),
        hypervisor=hypervisor or None,
        hvparams=key_values(hvparams, "hvparams") if hvparams else {},
        osparams=texts(args.os_parameters, "osparams"),
        has_nics=not args.no_nics,
        iallocator=args.iallocator,
        name_check=not args.no_name_check,
        ip_check=not args.no_name_check and not args.no_ip_check,
        early_release=args.early_release,
        reboots=tuple(RebootType(one) for one in reboots),
        rename=args.rename,
        without=frozenset(args.without or ()),
    )


def _sizes(text: str, name: str) -> tuple[int, ...]:
    return tuple(parse_mib(one, name) for one in text.split(","))


def _number(text: str, name: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1 << 16:
        raise InputError(f"{text!r:.80} is not a number from 1 to 65536", name)
    return int(text)


def usable_nodes(client: LuxiClient, wanted: str | None) -> list[str]:
    """Return the nodes of `-n`, or all nodes that can have instances; PrereqError for an unusable node."""
    fields = ("name", "offline", "drained", "vm_capable")
    rows = [[value for _status, value in row] for row in client.query("node", fields)["data"]]
    usable = [
        name for name, offline, drained, capable in rows if capable and not (offline or drained)
    ]
    if wanted is None:
        chosen = usable
    else:
        chosen = [
            one for name in wanted.split(",") for one in _matching(name, [row[0] for row in rows])
        ]
        for name in chosen:
            if name not in usable:
                raise PrereqError(
                    f"node {name} is offline, drained or not vm_capable", ErrorCode.WRONG_STATE
                )
    if not chosen:
        raise PrereqError("no node of the cluster can have instances", ErrorCode.NO_RESOURCES)
    return chosen


def _matching(name: str, known: Sequence[str]) -> list[str]:
    found = [one for one in known if one == name] or [
        one for one in known if one.startswith(f"{name}.")
    ]
    if len(found) != 1:
        raise PrereqError(f"node {name} does not exist", ErrorCode.UNKNOWN_ENTITY)
    return found


def run(argv: Sequence[str]) -> int:
    """Run the whole test; return 0 if every step succeeded and all instances were removed."""
    from ganeti.base.ids import RandomIds

    args = parser().parse_intermixed_args(argv)
    args.prog = args.command = PROG
    options = options_of(args)
    args.net_timeout = _number(args.net_timeout, "--net-timeout")
    with LuxiClient() as client:
        nodes = usable_nodes(client, args.nodes)
        if options.kind.nodes_needed > len(nodes):
            raise PrereqError(
                f"disks of the template {options.template} need {options.kind.nodes_needed} nodes",
                ErrorCode.NO_RESOURCES,
            )
        tag = f"{PROG}:{RandomIds().token()}"
        trial = Trial(client, options, args, nodes, tag)
        failure = _failure(lambda: trial.run(args.instances))
        if args.keep_instances:
            say(f"The instances were kept; they have the tag {tag}")
        else:
            failure = _failure(trial.remove) or failure
        for line in format_table(["Step", "Took"], trial.times):
            say(line)
    return EXIT_FAILURE if failure else 0


def _failure(work: Callable[[], Any]) -> bool:
    """Run `work`; print an error and return True if it failed. An interrupt removes the instances, too."""
    try:
        work()
    except GanetiError as err:
        say(f"Failure: {err.message}", file=sys.stderr, flush=True)
        return True
    except KeyboardInterrupt:
        say("Interrupted.", file=sys.stderr, flush=True)
        return True
    return False


def main() -> NoReturn:
    """Run the program."""
    sys.exit(run_guarded(lambda: run(sys.argv[1:])))
