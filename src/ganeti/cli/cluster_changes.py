"""The commands of gnt-cluster that change a running cluster."""

import argparse
import time
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import Argument, CommandTable, option
from ganeti.cli.jobs import run_job
from ganeti.cli.key_values import (
    duration_s,
    merged_key_values,
    named_key_values,
)
from ganeti.cli.options import FORCE, JOB_OPTIONS, QUERY_JOB_OPTIONS
from ganeti.cli.output import format_time
from ganeti.cli.policy_options import POLICY_OPTIONS, policy_of, words
from ganeti.cli.state_options import STATE_OPTIONS
from ganeti.clients.luxi import LuxiClient
from ganeti.uidpool import ParseUidPool

ALLOCATOR_PARAMS = option(
    "--default-iallocator-params", dest="allocator_params", action="append", metavar="k=v,...",
    help="options for allocators, as no-capacity-checks or ignore-soft-errors",
)  # fmt: skip
UID_POOL = option(
    "--uid-pool", metavar="UID,LOW-HIGH,...",
    help="user ids that guests of KVM run under, one each, as 61000-61199; '' for none",
)  # fmt: skip

MODIFY_OPTIONS = (
    option("--enabled-hypervisors", metavar="NAME,...", help="hypervisors; the first is the default"),
    option("-H", "--hypervisor-parameters", "--hypervisor-params", dest="hvparams",
           action="append", metavar="HYPERVISOR:k=v,...",
           help="hypervisor parameters; '-k' takes the default again; may be repeated"),
    option("-B", "--backend-parameters", dest="beparams", action="append", metavar="k=v,...",
           help="backend parameters, as memory=512m,vcpus=1"),
    option("-N", "--nic-parameters", dest="nicparams", action="append", metavar="k=v,...",
           help="NIC parameters, as mode=bridged,link=br0"),
    option("--node-parameters", dest="ndparams", action="append", metavar="k=v,...",
           help="node parameters"),
    option("-D", "--disk-parameters", dest="diskparams", action="append",
           metavar="TEMPLATE:k=v,...",
           help="parameters of a disk template, as plain:stripes=2; '-k' takes the default again"),
    option("--enabled-disk-templates", metavar="NAME,...",
           help="disk templates; the first is the default"),
    option("-I", "--default-iallocator", metavar="NAME", completion="iallocator",
           help="allocators that choose nodes where a command names none, tried in order, as"
           " mine,hail, and others for one kind of request, as hail/relocate=mine; '' for none"),
    ALLOCATOR_PARAMS,
    option("-C", "--candidate-pool-size", type=int, metavar="N",
           help="how many nodes are kept as master candidates"),
    option("--max-running-jobs", type=int, metavar="N", help="how many jobs may run at a time"),
    option("-m", "--mac-prefix", metavar="XX:XX:XX", help="first bytes of new MAC addresses"),
    option("--master-netdev", metavar="DEVICE",
           help="interface of the cluster's address; '' leaves the address to somebody else"),
    option("--master-netmask", type=int, metavar="BITS", help="its netmask"),
    option("--file-storage-dir", metavar="DIRECTORY", help="where disks are kept as files"),
    option("--shared-file-storage-dir", metavar="DIRECTORY",
           help="where disks are kept as files that all nodes see"),
    option("--remote-hvparams", metavar="NAME,...",
           help="hypervisor parameters that users of the REST interface may set although they reach"
           " the host; '' for none"),
    *POLICY_OPTIONS,
    UID_POOL,
    option("--enabled-data-collectors", dest="data_collectors", action="append", metavar="NAME=BOOL,...",
           help="switch collectors of the monitoring daemon on or off, as lv=false"),
    option("--data-collector-interval", dest="collector_interval", action="append",
           metavar="NAME=SECONDS,...", help="how often each collects at most, as drbd=30"),
    option("--add-uids", metavar="UID,LOW-HIGH,...", help="more user ids for the pool"),
    option("--remove-uids", metavar="UID,LOW-HIGH,...",
           help="user ids that no new guest gets any more"),
)  # fmt: skip


def add_change_commands(table: CommandTable) -> None:
    """Give gnt-cluster its commands that change a running cluster."""
    table.command("modify", *MODIFY_OPTIONS, *STATE_OPTIONS, FORCE, *JOB_OPTIONS)(modify)
    table.command("redist-conf", *JOB_OPTIONS)(redist_conf)
    table.command("search-tags", Argument("pattern", "regular expression"), *QUERY_JOB_OPTIONS)(
        search_tags
    )
    table.command("activate-master-ip", *JOB_OPTIONS)(activate_master_ip)
    sure = option("--yes", dest="force", action="store_true", help="do it without asking")
    table.command("deactivate-master-ip", sure, *JOB_OPTIONS)(deactivate_master_ip)
    table.command(
        "watcher",
        Argument("action", "pause, continue or info"),
        Argument("duration", "for pause: how long, as 30m or 2h", nargs="?"),
    )(watcher)


def modify(args: argparse.Namespace) -> int:
    """Change the cluster's parameters.

    Only what is given changes. What an existing instance uses (a hypervisor, a disk template, a
    directory of disks) cannot be taken away.

    `--state` moves the state of the running cluster, and is for the master node: no job runs meanwhile,
    guests go on, and the command may be repeated after a failure.
    """
    from ganeti.cli.cluster_state import move_state
    from ganeti.model.opcodes.cluster import OpClusterSetParams

    same = (
        "default_iallocator", "candidate_pool_size", "max_running_jobs", "mac_prefix",
        "master_netdev", "master_netmask", "file_storage_dir", "shared_file_storage_dir",
    )  # fmt: skip
    given: dict[str, Any] = {name: getattr(args, name) for name in same}
    for name in ("enabled_hypervisors", "enabled_disk_templates", "remote_hvparams"):
        given[name] = words(getattr(args, name))
    for name in ("beparams", "nicparams", "ndparams"):
        if getattr(args, name):
            given[name] = merged_key_values(getattr(args, name), name)
    if args.hvparams:
        given["hvparams"] = named_key_values(args.hvparams, "hvparams")
    given["diskparams"] = named_key_values(args.diskparams, "diskparams") or None
    given["ipolicy"] = policy_of(args) or None
    if args.allocator_params:
        given["default_iallocator_params"] = merged_key_values(
            args.allocator_params, "default_iallocator_params"
        )
    given |= _data_collectors(args)
    for name in ("uid_pool", "add_uids", "remove_uids"):
        if (text := getattr(args, name)) is not None:
            given[name] = ParseUidPool(text)
    is_given = any(value is not None for value in given.values())
    if not (is_given or args.state):
        raise InputError("say what is to be changed; see --help", "options")
    move_state(args)
    if is_given:
        with LuxiClient() as client:
            run_job(client, OpClusterSetParams(**given, force=args.force), args)
    return 0


def _data_collectors(args: argparse.Namespace) -> dict[str, Any]:
    from ganeti.model.data_collectors import MICROSECONDS

    given: dict[str, Any] = {}
    if args.data_collectors:
        words = {"true": True, "false": False}
        found = merged_key_values(args.data_collectors, "enabled_data_collectors")
        given["enabled_data_collectors"] = {
            name: words.get(value.lower(), value) if isinstance(value, str) else value
            for name, value in found.items()
        }
    if args.collector_interval:
        found = merged_key_values(args.collector_interval, "data_collector_interval")
        try:
            given["data_collector_interval"] = {
                name: None if value is None else int(float(value) * MICROSECONDS)
                for name, value in found.items()
            }
        except (ValueError, OverflowError) as err:
            raise InputError(
                f"an interval is a number of seconds: {err}", "data_collector_interval"
            ) from err
    return given


def redist_conf(args: argparse.Namespace) -> int:
    """Give all nodes the cluster's facts (ssconf) and the files that they must have.

    Besides files that the cluster itself needs, these are the files named in
    /etc/ganeti/distributed-files on the master, one a line, and that list. Each node takes only
    files that its /etc/ganeti/allowed-uploads names.
    """
    from ganeti.model.opcodes.cluster import OpClusterRedistConf

    with LuxiClient() as client:
        run_job(client, OpClusterRedistConf(), args)
    return 0


def search_tags(args: argparse.Namespace) -> int:
    """Find tags by a regular expression: the path of the object and the tag, one pair a line."""
    from ganeti.cli.command import EXIT_FAILURE
    from ganeti.model.opcodes.tags import OpTagsSearch

    with LuxiClient() as client:
        found = run_job(client, OpTagsSearch(pattern=args.pattern), args)
    for path, tag in found:
        say(path, tag)
    return 0 if found else EXIT_FAILURE


def activate_master_ip(args: argparse.Namespace) -> int:
    """Configure the cluster's address on the master, unless another host answers at it."""
    from ganeti.model.opcodes.cluster import OpClusterActivateMasterIp

    with LuxiClient() as client:
        run_job(client, OpClusterActivateMasterIp(), args)
    return 0


def deactivate_master_ip(args: argparse.Namespace) -> int:
    """Take the cluster's address from the master; clients that use it lose their connections."""
    from ganeti.cli.confirmation import confirm
    from ganeti.model.opcodes.cluster import OpClusterDeactivateMasterIp

    confirm("Take the cluster's address away?", is_sure=args.force, how="--yes")
    with LuxiClient() as client:
        run_job(client, OpClusterDeactivateMasterIp(), args)
    return 0


def watcher(args: argparse.Namespace) -> int:
    """Let the watcher rest for some time (pause), let it go on (continue), or show which (info)."""
    with LuxiClient() as client:
        if args.action == "pause":
            if args.duration is None:
                raise InputError("say for how long, as in 'watcher pause 30m'", "duration")
            until = client.call("SetWatcherPause", time.time() + duration_s(args.duration))
            say(f"The watcher is paused until {format_time(until)}.")
        elif args.action == "continue":
            client.call("SetWatcherPause", None)
            say("The watcher is no longer paused.")
        elif args.action == "info":
            until = client.config_values("watcher_pause")[0]
            state = "not paused" if until is None else f"paused until {format_time(until)}"
            say(f"The watcher is {state}.")
        else:
            raise InputError(f"{args.action!r:.40} must be pause, continue or info", "action")
    return 0
