"""The commands of gnt-cluster that import and export a configuration of upstream Ganeti."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, HostError, PrereqError
from ganeti.base.paths import NODED_PORT, Paths, hostname
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE, CommandTable, option
from ganeti.model.operation import Argument

if TYPE_CHECKING:
    from ganeti.upstream.report import Report

_KEEP = option("--keep-unknown", action="store_true",
               help="drop unsupported features instead of refusing the import")  # fmt: skip
_JSON = option("--json", action="store_true", help="print the report as JSON")


def add_takeover_commands(table: CommandTable) -> None:
    """Add `import` and `export` to the table."""
    table.command(
        "import",
        Argument("file", "config.data of Ganeti 2.7 to 3.1", completion="file"),
        option("--dry-run", action="store_true", help="show the report and the plan, and create nothing"),
        _KEEP,
        option("--rename", action="append", metavar="KIND:OLD=NEW",
               help="replace an invalid name of a cluster, group, instance, network or node; may be repeated"),
        option("--hypervisor", action="append", metavar="OLD=NEW",
               help="replace an unsupported hypervisor, for example xen-pvm=kvm; may be repeated"),
        option("--node-port", dest="port", type=int, metavar="PORT",
               help="port of this node's node daemon (1811)"),
        _JSON,
    )(import_config)  # fmt: skip
    table.command(
        "export",
        Argument("file", "path of the configuration", completion="file"),
        option("--dry-run", action="store_true", help="show the report and write nothing"),
        option("--original", metavar="FILE",
               help="the imported config.data; default: the copy that the import stored"),
        _KEEP,
        _JSON,
    )(export_config)  # fmt: skip


def import_config(args: argparse.Namespace) -> int:
    """Create a cluster from a configuration of upstream Ganeti. This host, one of its nodes, becomes the master.

    The import keeps UUIDs, names, disks with their ports and minors, parameters, policies, networks, tags and
    filters. The report lists everything that the import does not keep unchanged:

    - `refused`: an option must resolve the difference before the cluster can be created.
    - `changed`: the cluster uses another value.
    - `kept`: the value is not used, but the stored copy of the file keeps it for an export.

    The cluster gets new keys and certificates. The other nodes are marked offline until 'gnt-node add --readd'
    adds them. The watcher is paused, so that it does not start guests that still run on those
    nodes; 'gnt-cluster watcher continue' resumes it.
    """
    import asyncio

    from ganeti.base.files import read_at_most
    from ganeti.bootstrap.takeover import import_cluster, last_job_of, plan_import
    from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
    from ganeti.upstream.choices import Choices, parse_hypervisors, parse_names
    from ganeti.upstream.forms import LARGEST

    choices = Choices(
        keep_unknown=args.keep_unknown,
        names=parse_names(args.rename or ()),
        hypervisors=parse_hypervisors(args.hypervisor or (), HYPERVISOR_PARAMS),
    )
    path = Path(args.file)
    try:
        data = read_at_most(path, LARGEST)
    except OSError as err:
        raise HostError(f"cannot read {path}: {err.strerror}") from err
    plan = plan_import(data, hostname(), choices, last_job=last_job_of(path))
    _show(plan.report, plan.lines(), as_json=args.json)
    if plan.report.refused:
        say("Nothing was created: resolve the refused items first.", file=sys.stderr)
        return EXIT_FAILURE
    if args.dry_run:
        return 0
    paths = Paths.from_environment()
    asyncio.run(import_cluster(plan, paths=paths, port=args.port or NODED_PORT))
    return 0


def export_config(args: argparse.Namespace) -> int:
    """Write the configuration of the running cluster in the format of Ganeti 3.0.

    Run it on the master. Values that did not change since an import are exported as they were imported, and
    the values that the import kept in the file are exported again. Only root can read the file, because
    it contains private OS parameters and the secrets of mirrored disks. The report lists the steps that are
    needed before upstream Ganeti can start, for example renaming a volume.
    """
    import asyncio

    from ganeti.base.files import write_atomically
    from ganeti.bootstrap.takeover import export_cluster, original_of

    paths = Paths.from_environment()
    if not paths.luxi_socket.exists():
        raise PrereqError(
            f"no master daemon runs on {hostname()}; run this command on the master",
            ErrorCode.WRONG_STATE,
        )
    original = original_of(paths, Path(args.original) if args.original else None)
    document, report = asyncio.run(export_cluster(paths, original, keep_unknown=args.keep_unknown))
    _show(report, list(report.lines()), as_json=args.json)
    if report.refused:
        say("Nothing was written: resolve the refused items first.", file=sys.stderr)
        return EXIT_FAILURE
    if not args.dry_run:
        path = Path(args.file).absolute()
        try:
            write_atomically(path, json.dumps(document, sort_keys=True).encode())
        except OSError as err:
            raise HostError(f"cannot write {path}: {err.strerror}") from err
    return 0


def _show(report: "Report", lines: list[str], *, as_json: bool) -> None:
    if as_json:
        say(json.dumps(report.as_json(), indent=1))
    else:
        for line in lines:
            say(line)
