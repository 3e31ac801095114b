"""gnt-backup key and gnt-backup decrypt."""

import argparse
import os
import sys
import time
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import CommandTable, option
from ganeti.cli.jobs import run_opcode
from ganeti.cli.objects import ObjectKind, print_list
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JOB_OPTIONS, LIST_OPTIONS, VERBOSE
from ganeti.cli.output import print_json, wanted_filter
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

KEY_KIND = ObjectKind(
    query="backup-key", rows="BackupKeys", listed=("name", "active", "ctime", "owner")
)
KEY_FILE = option(
    "--key-file", dest="key_file", metavar="FILE", completion="file",
    help="file with the text of the key, as 'gnt-backup key export' prints it; '-': standard input",
)  # fmt: skip
_ACTIONS = ("create", "list", "export", "import", "retire")


def add_keys(table: CommandTable) -> None:
    """Add the commands key and decrypt."""
    table.command(
        "key",
        Argument("action", "create, list, export, import or retire"),
        Argument("key", "id of the key; for import: file with its text, '-': standard input", nargs="?"),
        option("--activate", dest="activate", action="store_true",
               help="for import: use the key for new backups"),
        option("--force", dest="force", action="store_true",
               help="for retire: remove the key although backups use it, or may use it"),
        option("--yes-do-it", dest="is_sure", action="store_true",
               help="confirm the removal of a key by --force"),
        *(one for one in LIST_OPTIONS if one is not VERBOSE),
        *JOB_OPTIONS,
    )(key)  # fmt: skip
    table.command(
        "decrypt",
        Argument("directory", "directory with the backups of one instance, which has the name of the instance",
                 completion="file"),
        Argument("target", "new or empty directory for the plain files", completion="file"),
        KEY_FILE,
    )(decrypt)  # fmt: skip


def key(args: argparse.Namespace) -> int:
    """Manage the keys that encrypt incremental backups.

    create makes a key, which all new encrypted backups use; earlier keys remain, so older backups can be restored. The
    next encrypted backup of each instance is a full one. 'gnt-backup save --encrypt=yes' and 'gnt-backup schedule add
    --encrypt=yes' encrypt backups, 'gnt-cluster modify --encrypt-backups=yes' all of them. The cluster then reads an
    unencrypted backup only with --allow-unencrypted, because an attacker could have put it there.

    export prints a page with a key, by default the active one: 13 numbered groups of letters, and instructions. Keep it on
    paper, where no copy of the backups is. With the page and the backups, 'gnt-backup decrypt' needs no cluster. Without
    the page, the loss of the cluster is the loss of all its encrypted backups. Only root on the master can export a key;
    the audit log records it. import adds a key from such a text, for example in another cluster; a typing error is
    reported with the number of its group. With --activate, new backups use the key. retire removes a key that no backup
    uses any more. It is refused while a node does not answer, because that may have such backups.

    The cluster stores the keys in its state, so backups of the state contain them: protect 'gnt-cluster backup' files.
    Nodes get only keys that are derived for the one instance whose backup they write or read, and keep them in memory.
    """
    if args.action not in _ACTIONS:
        raise InputError(f"{args.action!r:.40} must be one of: {', '.join(_ACTIONS)}", "action")
    for name, action in (("activate", "import"), ("force", "retire")):
        if getattr(args, name) and args.action != action:
            raise InputError(f"is only for {action}", name)
    if args.key is None and args.action in ("import", "retire"):
        what = "file with the text of the key" if args.action == "import" else "key"
        raise InputError(f"name the {what}", "key")
    if args.key is not None and args.action == "create":
        raise InputError("a new key gets its id from its content; omit the argument", "key")
    return {"create": _create, "list": _list, "export": _export, "import": _import, "retire": _retire}[args.action](args)  # fmt: skip


def _run(args: argparse.Namespace, opcode: str, **given: Any) -> Any:
    return run_opcode(OpOptions(f"backup_keys.OpBackupKey{opcode}").kind(**given), args)


def _create(args: argparse.Namespace) -> int:
    made = _run(args, "Create")
    if made:
        say(
            f"Created backup key {made}. Print it, and keep it elsewhere: gnt-backup key export {made}"
        )
    return 0


def _list(args: argparse.Namespace) -> int:
    return print_list(
        args, KEY_KIND, wanted_filter("name", [args.key] if args.key else [], args.filter)
    )


def _export(args: argparse.Namespace) -> int:
    from ganeti.protocols.paper_key import paper_of

    with LuxiClient() as client:
        found = client.call("ReadBackupKey", args.key)
    day = time.strftime("%Y-%m-%d", time.gmtime(found["made"]))
    text = paper_of(bytes.fromhex(found["secret"]), found["cluster"], day)
    if args.is_json:
        return print_json({"key_id": found["key_id"], "text": text})
    say(text)
    return 0


def _import(args: argparse.Namespace) -> int:
    from ganeti.cli.input_file import read_text

    added = _run(args, "Import", secret=read_text(args.key), is_active=args.activate)
    if added and not args.dry_run:
        say(f"Added backup key {added}")
    return 0


def _retire(args: argparse.Namespace) -> int:
    removed = _run(args, "Retire", key_id=args.key, force=args.force)
    if removed and not args.dry_run:
        say(f"Removed backup key {removed}")
    return 0


def decrypt(args: argparse.Namespace) -> int:
    """Decrypt the backups of one instance to ordinary qcow2 files, without a cluster.

    The directory is that of the instance below a directory for backups, or a copy of it; it must have the name of the
    instance. --key-file is required: a file with the text of 'gnt-backup key export', typed from paper for example. The
    files of the new directory are those of unencrypted backups, which 'qemu-img' reads alone.

    Every manifest and each piece is verified. What was changed, damaged or encrypted with another key is named, and all
    other backups are written.
    """
    if not args.key_file:
        raise InputError("name the file with the text of the key: --key-file=FILE", "key-file")
    words = [sys.executable, "-P", "-m", "ganeti.node.backups.decrypt"]
    words += [f"--key-file={args.key_file}", "--", args.directory, args.target]
    os.execv(words[0], words)  # noqa: S606 - a program of this project
