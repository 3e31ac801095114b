"""`mon-collector`: print the report of one data collector of the monitoring daemon."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ganeti.base.errors import ErrorCode, HostError, InputError, PrereqError
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, Handler, option
from ganeti.cli.compiled import COLLECTOR

if TYPE_CHECKING:  # asyncio takes longer to load than `--help` may
    from ganeti.monitoring.collectors import Collectors

SAMPLE_S = 1.0
"""Seconds over which the program averages a load; the daemon uses minutes."""

MOST_BYTES = 16 * 1024 * 1024
"""Size limit of a file that replaces one of the kernel's, which have a few KiB."""

INPUT = option(
    "-f", "--file", dest="input", metavar="FILE", completion="file", help="read this file instead"
)

table = CommandTable(
    "mon-collector", "Show the report of a data collector of this node as JSON.", COLLECTOR
)


def _print(name: str, data: Any) -> int:
    import time

    from ganeti.monitoring.collectors import DESCRIPTIONS

    return _print_report(DESCRIPTIONS[name].report(data, time.time_ns()))


def _print_report(report: dict[str, Any]) -> int:
    """Print JSON without spaces, as upstream does: scripts match a key and its value as one text."""
    import json

    say(json.dumps(report, separators=(",", ":")))
    return 0


def _read(name: str, parse: Callable[[str], Any]) -> Any:
    """Return the content of a file; PrereqError begins like upstream's messages."""
    from ganeti.cli.input_file import read_input

    try:
        text = read_input(name, MOST_BYTES).decode(errors="replace")
    except InputError as err:
        raise InputError(f"Failed reading: {err.message}") from err
    except PrereqError as err:
        raise PrereqError(f"reading from file: {err.message}", err.code) from err
    try:
        return parse(text)
    except HostError as err:
        raise InputError(f"Failed reading: {err.message}") from err


def _collect(name: str, *, samples: bool = False) -> int:
    """Return the report of a collector in the form of the daemon."""
    import asyncio

    from ganeti.base.paths import Paths
    from ganeti.model.data_collectors import collecting
    from ganeti.monitoring.collectors import DESCRIPTIONS, Collectors, Host

    every = collecting({}, {})
    collectors = Collectors(Host(Paths.from_environment()), lambda: every)

    async def report() -> dict[str, Any]:
        if samples:
            await _sample_twice(collectors, name)
        return await collectors.report(DESCRIPTIONS[name])

    found = asyncio.run(report())
    if why := found["data"].get("error") if isinstance(found["data"], dict) else None:
        raise PrereqError(why, ErrorCode.ENVIRONMENT)
    return _print_report(found)


async def _sample_twice(collectors: "Collectors", name: str) -> None:
    import asyncio

    await collectors.sample(name)
    await asyncio.sleep(SAMPLE_S)
    await collectors.sample(name)


@table.command("diskstats", INPUT)
def diskstats(args: argparse.Namespace) -> int:
    """Show the reads and writes of block devices."""
    from ganeti.monitoring.disks import parse_diskstats

    return _print("diskstats", _read(args.input or "/proc/diskstats", parse_diskstats))


@table.command(
    "drbd",
    option("-s", "--drbd-status", dest="status", metavar="FILE", completion="file",
           help="read this file instead of /proc/drbd"),
    option("-p", "--drbd-pairing", dest="pairing", metavar="FILE", completion="file",
           help="JSON file that maps minors to disks: a list of [node, minor, instance, disk, role, peer]"),
)  # fmt: skip
def drbd(args: argparse.Namespace) -> int:
    """Show the state of mirrored disks, and a rating of it."""
    from ganeti.monitoring.drbd import parse

    owners = _read(args.pairing, _pairing) if args.pairing else {}
    found = _read(args.status or "/proc/drbd", lambda text: parse(text, owners))
    return _print("drbd", found)


def _pairing(text: str) -> dict[int, str]:
    import json

    try:
        return {int(row[1]): str(row[2]) for row in json.loads(text)}
    except (ValueError, TypeError, IndexError, KeyError) as err:
        raise InputError(
            f"Can't get pairing info: Malformed JSON: {err};"
            " the file of -p must be a list of [node, minor, instance, ...]"
        ) from err


@table.command(
    "lv", INPUT,
    option("-i", "--instances", metavar="FILE", completion="file",
           help="with -f: read the instances of the volumes from this file instead of tags, as JSON: [[instance, [disk, ...]], ...]"),
)  # fmt: skip
def lv(args: argparse.Namespace) -> int:
    """Show the logical volumes of this node and the instances that own them."""
    from ganeti.monitoring.disks import parse_lvs

    if args.input:
        owners = _read(args.instances, _owners) if args.instances else None
        return _print("lv", _read(args.input, lambda text: parse_lvs(text, owners)))
    if args.instances:
        raise InputError("-i needs the file of volumes too; pass it with -f")
    return _collect("lv")


def _owners(text: str) -> dict[tuple[str, str], str]:
    import json

    from ganeti.monitoring.disks import volume_owners

    try:
        return volume_owners(json.loads(text))
    except (ValueError, TypeError, LookupError, AttributeError) as err:
        raise InputError(
            f"Unable to obtain the list of instances: Not a list of instances: {err};"
            " the file of -i must be [[instance, [disk, ...]], ...]"
        ) from err


def _add(name: str, what: str, *, samples: bool = False) -> None:
    """Add a command without options for a collector."""

    def command(_args: argparse.Namespace) -> int:
        return _collect(name, samples=samples)

    command.__doc__ = what
    handler: Handler = command
    table.command(name)(handler)


_add(
    "cpu-avg-load",
    "Show the load of each processor and of all processors in the last second.",
    samples=True,
)
_add("inst-status-kvm", "Show the KVM guests that run on this node.")
_add("kvm-inst-rss", "Show the number of memory pages of each KVM guest of this node.")


def main() -> NoReturn:
    """Run the program."""
    table.main()


if __name__ == "__main__":
    main()
