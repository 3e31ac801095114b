"""gnt-cluster renew-crypto."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.jobs import run_opcode
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS

if TYPE_CHECKING:  # It imports modules that slow down the start of commands.
    from ganeti.bootstrap.renew_files import FileRenewal

RENEW = OpOptions("cluster.OpClusterRenewCrypto")
_FILES = {
    "rapi": option("--new-rapi-certificate", dest="rapi", action="store_true",
                   help="create a new certificate for the REST interface"),
    "rapi_file": option("--rapi-certificate", dest="rapi_file", metavar="FILE", completion="file",
                        help="read the key and certificate of the REST interface from a file"),
    "spice": option("--new-spice-certificate", dest="spice", action="store_true",
                    help="create a new certificate for SPICE displays"),
    "spice_file": option("--spice-certificate", dest="spice_file", metavar="FILE",
                         completion="file", help="read the key and certificate of SPICE displays from a file"),
    "spice_authority_file": option("--spice-ca-certificate", dest="spice_authority_file",
                                   metavar="FILE", completion="file",
                                   help="certificate of the authority that signed the SPICE certificate"),
    "domain_secret": option("--new-cluster-domain-secret", dest="domain_secret",
                            action="store_true", help="create a new cluster domain secret"),
    "domain_secret_file": option("--cluster-domain-secret", dest="domain_secret_file",
                                 metavar="FILE", completion="file",
                                 help="read the domain secret of another cluster from a file"),
}  # fmt: skip
_SSH = (
    option("--new-ssh-keys", action="store_true",
           help="ignored; kept for compatibility with Ganeti 3"),
    option("--no-ssh-key-check", action="store_true", help="the same"),
)  # fmt: skip


def add_crypto_commands(table: CommandTable) -> None:
    """Add the command about keys to the table."""
    table.command("renew-crypto", RENEW, *_FILES.values(), *_SSH, FORCE, *JOB_OPTIONS)(renew_crypto)


def renew_crypto(args: argparse.Namespace) -> int:
    """Renew keys and certificates of a running cluster. Run it on the master, as root.

    Old keys and certificates remain valid until all nodes have the new ones. The command can be repeated after
    any failure. It lists nodes that do not answer; they receive their certificates automatically when they are
    back. The old authority remains valid until all online nodes have a new certificate, so mark nodes
    offline that will not return.
    A candidate that missed new files and becomes the master does not distribute its old files; gnt-cluster
    verify reports this state.
    """
    files = _wanted_files(args)
    given = RENEW.given(args)
    if args.new_ssh_keys:
        say(
            "Nodes do not use ssh keys between each other, so there are no ssh keys to renew.",
            file=sys.stderr,
        )
    if not (given or files):
        if args.new_ssh_keys:
            return 0
        raise InputError("nothing to renew: pass at least one option; --help lists them", "options")
    if not args.force:
        from ganeti.cli.confirmation import confirm

        confirm("Renew keys of the cluster?", is_sure=False, how="--force")
    if files:
        _renew_files(files, args)
    if given:
        late = run_opcode(RENEW.kind(**given), args)
        return 1 if late else 0
    return 0


def _wanted_files(args: argparse.Namespace) -> "FileRenewal | None":
    given: dict[str, Any] = {name: value for name in _FILES if (value := getattr(args, name))}
    if not given:
        return None
    from ganeti.bootstrap.renew_files import FileRenewal

    wanted = FileRenewal(**given)
    wanted.check()
    return wanted


def _renew_files(wanted: "FileRenewal", args: argparse.Namespace) -> None:
    import asyncio
    import time

    from ganeti.base.paths import Paths
    from ganeti.bootstrap.daemons import RAPI, Daemons
    from ganeti.bootstrap.renew_files import renew_files
    from ganeti.clients.luxi import LuxiClient
    from ganeti.model.opcodes.cluster import OpClusterRedistConf

    with LuxiClient() as client:  # Proves that this node is the master and that the master runs.
        name = client.call("QueryClusterInfo")["name"]
    paths = Paths.from_environment()
    daemons = Daemons(paths)
    serves_rest = daemons.status(RAPI).process is not None
    for line in renew_files(paths, wanted, name, time.time()):
        say(line)
    run_opcode(OpClusterRedistConf(renewed=wanted.paths(paths)), args)
    if serves_rest and (wanted.rapi or wanted.rapi_file):
        asyncio.run(daemons.restart(RAPI))
