"""ovfconverter: convert machine images to exports, and exports to OVA files."""

import argparse
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from ganeti.base.errors import ErrorCode, HostError, PrereqError
from ganeti.base.files import sync_directory, write_atomically
from ganeti.base.identifiers import host_name
from ganeti.base.paths import Paths
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.model.operation import Argument

table = CommandTable(
    "ovfconverter",
    "Convert machines between OVF and the exports of gnt-backup on one host, without a cluster.",
)

FORMATS = ("auto", "raw", "qcow2", "vmdk", "ova", "ovf")
NAME = option("-n", "--name", metavar="NAME", help="name of the machine, which must be a host name")


@table.command(
    "import",
    Argument("source", "OVA file, OVF file with its files in the same directory, or disk image", completion="file"),
    NAME,
    option("--format", choices=FORMATS, default="auto", help="format of the source; default: detected from its header"),
    option("--output-dir", dest="output_dir", metavar="DIR", completion="file",
           help="directory of the export; default: /srv/ganeti/export"),
)  # fmt: skip
def import_(args: argparse.Namespace) -> int:
    """Create an export that `gnt-backup import` accepts.

    The command refuses backing files, external data files, links, and images that do not match their description.
    qemu-img runs confined, as a separate user. `gnt-backup import --image` combines conversion and import.
    """
    from ganeti.images.convert import convert_package, describe, description_text
    from ganeti.images.package import open_beside, opened_package
    from ganeti.protocols.export_description import check_export_name

    source = Path(args.source)
    output = Path(args.output_dir) if args.output_dir else Paths.from_environment().exports
    with (
        _errors_of_the_host(output),
        _directory(source.parent) as beside,
        opened_package(lambda name: open_beside(beside, name), source.name, args.format) as found,
    ):
        export = describe(found, host_name(args.name, "--name") if args.name else "")
        check_export_name(export.name)
        with _new_export(output, export.name) as directory:
            convert_package(found, directory)
            write_atomically(directory / "config.ini", description_text(export).encode())
    say(f"{output / export.name}: {len(export.disks)} disks; import it with"
        f" gnt-backup import --src-node ... --src-dir {export.name}")  # fmt: skip
    return 0


@table.command(
    "export",
    Argument("export", "directory of the export, or its config.ini", completion="file"),
    NAME,
    option("--output-dir", dest="output_dir", metavar="DIR", completion="file",
           help="directory of NAME.ova; default: the current directory"),
    option("--ova", action="store_true", help="ignored; the command always writes an OVA file"),
)  # fmt: skip
def export(args: argparse.Namespace) -> int:
    """Write an OVA file for other hypervisors from an export whose dumps are plain disk images."""
    from ganeti.images.ova import CONFIG, pack, read_export

    source = Path(args.export)
    directory = source.parent if source.name == CONFIG else source
    described = read_export(directory)
    name = host_name(args.name, "--name") if args.name else described.name
    target = Path(args.output_dir or ".") / f"{name}.ova"
    if target.exists():
        raise PrereqError(
            f"{target} already exists; remove it, or pass another --name", ErrorCode.EXISTS
        )
    with _errors_of_the_host(target):
        pack(directory, described, target, name)
    say(f"{target}: {target.stat().st_size} bytes")
    return 0


@contextlib.contextmanager
def _errors_of_the_host(where: Path) -> Iterator[None]:
    """Raise HostError for errors of reading and writing, for example on a full disk."""
    try:
        yield
    except OSError as err:
        raise HostError(f"{err.filename or where}: {err.strerror or err}") from err


@contextlib.contextmanager
def _directory(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as err:
        raise HostError(f"cannot read {path}: {err.strerror}") from err
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _new_export(output: Path, name: str) -> Iterator[Path]:
    """Yield a directory that gets its final name if the block succeeds, and is removed otherwise."""
    final, new = output / name, output / f"{name}.new"
    if final.exists():
        raise PrereqError(
            f"{final} already exists; remove it, or pass another --name", ErrorCode.EXISTS
        )
    try:
        output.mkdir(mode=0o750, parents=True, exist_ok=True)
        new.mkdir(mode=0o700)
    except OSError as err:
        raise HostError(f"cannot create {new}: {err.strerror}") from err
    try:
        yield new
        sync_directory(new)
        new.rename(final)
        sync_directory(output)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def main() -> NoReturn:
    """Run the program."""
    table.main()
