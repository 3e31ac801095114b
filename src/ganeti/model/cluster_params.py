"""The cluster's parameters, each declared once: type, default, checks, option, limits, display.

The fields of `Cluster` and of OP_CLUSTER_SET_PARAMS, the effect of a change, the options of `gnt-cluster init` and
`modify`, the answers of QueryClusterInfo and `gnt-cluster info`, and the ssconf files follow from these declarations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, get_args

from ganeti.model import cluster_values as values
from ganeti.model.compression import TOOLS
from ganeti.model.data_collectors import check_enabled, check_intervals, enabled, intervals_us
from ganeti.model.disk_templates import (
    DISK_TEMPLATES,
    DRBD_HELPERS_OFF,
    ENABLED_BY_DEFAULT,
    TEMPLATES,
)
from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS, hypervisor_defaults
from ganeti.model.iallocator import BUILT_IN, parse_defaults
from ganeti.model.limits import MAX_LIVE_JOBS
from ganeti.model.params import (
    BACKEND_DEFAULTS,
    IPOLICY_DEFAULTS,
    NIC_DEFAULTS,
    NODE_DEFAULTS,
    Params,
    layered,
)
from ganeti.model.stored import Stored
from ganeti.model.uid_ranges import CheckUidPool, FormatUidPool, UidRange

POOL_LIMIT = 10_000


def _as_it_is(value: Any) -> Any:
    return value


def _with_defaults(defaults: dict[str, Params]) -> Callable[[dict[str, Params]], dict[str, Params]]:
    return lambda value: {
        name: layered(params, value.get(name, {})) for name, params in defaults.items()
    }


@dataclass(frozen=True, kw_only=True)
class ClusterParam:
    """The facts about one parameter besides its name, type and default."""

    given: Any
    """The type of its value in a request, besides None, which keeps the present value."""
    field: Field = Field("")  # noqa: RUF009 - immutable
    check: values.Check | None = None
    """Checks the value of a request, before anything else does."""
    change: values.Change = values.replaced
    initial: Any = None
    """The initial value of a new cluster; None: the default of the type."""
    with_defaults: Callable[[Any], Any] = _as_it_is
    """The effective values with defaults filled in, as QueryClusterInfo shows them."""
    heading: str = ""
    """Its name in `gnt-cluster info`."""
    is_general: bool = False
    """True if it is shown there together with others, not alone."""
    info: str = ""
    """Its name in QueryClusterInfo, if that differs."""
    upstream: str | None = None
    """The field in upstream's configuration: None for one of the same name, '' for none at all."""
    ssconf: str = ""
    """The ssconf file that contains it."""
    lines: Callable[[Any], str] = str
    """The value in that file."""
    used_by_instances: bool = False
    """True if existing instances may forbid a change."""
    reaches_host: bool = False
    """True if by it a remote user could reach any directory, or be any user, of the nodes (A44, A45)."""
    refers_to: RefersTo = RefersTo.CLUSTER


class ClusterParams(Stored, frozen=True, kw_only=True):
    """The parameters of the cluster, in the order in which they are shown."""

    # fmt: off
    enabled_hypervisors: Annotated[tuple[str, ...], ClusterParam(
        given=list[str],
        field=Field("hypervisors; the first is the default", metavar="NAME,...", form=Form.WORDS),
        check=values.one_of(HYPERVISOR_PARAMS), change=values.as_tuple, heading="Enabled hypervisors",
        ssconf="hypervisor_list", lines=lambda names: "\n".join(sorted(names)), used_by_instances=True,
    )] = ("kvm",)
    hvparams: Annotated[dict[str, Params], ClusterParam(
        given=dict[str, Params],
        field=Field(
            "hypervisor parameters; '-k' resets k to the default; may be repeated",
            "! -H --hypervisor-parameters --hypervisor-params", metavar="HYPERVISOR:k=v,...", form=Form.NAMED,
        ),
        change=values.changed_hvparams,
        with_defaults=_with_defaults({name: hypervisor_defaults(name) for name in HYPERVISOR_PARAMS}),
        heading="Hypervisor parameters",
    )] = {}
    os_hvp: Annotated[dict[str, dict[str, Params]], ClusterParam(
        given=dict[str, dict[str, Params]], change=values.changed_os_hvp,
        heading="OS-specific hypervisor parameters",
    )] = {}
    osparams: Annotated[dict[str, dict[str, str]], ClusterParam(
        given=dict[str, Params], change=values.changed_osparams, heading="OS parameters",
    )] = {}
    hidden_os: Annotated[tuple[str, ...], ClusterParam(
        given=list[tuple[str, str]], change=values.changed_os_list, heading="Hidden OSes",
    )] = ()
    """OS definitions that lists omit; they may be used (S155)."""
    blacklisted_os: Annotated[tuple[str, ...], ClusterParam(
        given=list[tuple[str, str]], change=values.changed_os_list, heading="Blacklisted OSes",
    )] = ()
    """OS definitions that no new instance may have (S156)."""
    candidate_pool_size: Annotated[int, ClusterParam(
        given=int, field=Field("desired number of master candidates, which store the state and elect the master", "-C", "N"),
        check=values.at_most(POOL_LIMIT), heading="candidate pool size", is_general=True,
    )] = 10
    max_running_jobs: Annotated[int, ClusterParam(
        given=int, field=Field("maximum number of running jobs", metavar="N"),
        check=values.at_most(MAX_LIVE_JOBS), heading="maximal number of jobs running simultaneously",
        is_general=True,
    )] = 1000
    mac_prefix: Annotated[str, ClusterParam(
        given=str, field=Field("first bytes of new MAC addresses", "-m", "XX:XX:XX"),
        check=values.check_mac_prefix, heading="mac prefix", is_general=True,
    )] = "aa:00:00"
    master_netdev: Annotated[str, ClusterParam(
        given=str,
        field=Field(
            "interface of the cluster's address; '' if another system manages the address",
            metavar="DEVICE",
        ),
        check=values.check_device, heading="master netdev", is_general=True, ssconf="master_netdev",
    )] = ""
    master_netmask: Annotated[int, ClusterParam(
        given=int, field=Field("netmask of the cluster's address", metavar="BITS"), check=values.check_netmask,
        heading="master netmask", is_general=True,
        ssconf="master_netmask",
    )] = 32
    use_external_mip_script: Annotated[bool, ClusterParam(
        given=bool,
        field=Field(
            "whether /etc/ganeti/scripts/master-ip-setup of the nodes sets up the cluster's address",
            form=Form.YES_NO,
        ),
        heading="use external master IP address setup script", is_general=True,
    )] = False
    vg_name: Annotated[str, ClusterParam(
        given=str,
        field=Field(
            "default volume group of disks; '' for none", "! --vg-name", metavar="GROUP"
        ),
        check=values.check_volume_group, heading="lvm volume group", is_general=True,
        info="volume_group_name", upstream="volume_group_name",
    )] = ""
    drbd_helper: Annotated[str, ClusterParam(
        given=str,
        field=Field(
            "usermode_helper of the DRBD module on each node: a program that does nothing", "! --drbd-usermode-helper", metavar="PROGRAM",
        ),
        check=values.check_helper, heading="drbd usermode helper", is_general=True,
        info="drbd_usermode_helper", upstream="drbd_usermode_helper",
    )] = DRBD_HELPERS_OFF[0]
    reserved_lvs: Annotated[tuple[str, ...], ClusterParam(
        given=list[str],
        field=Field(
            "patterns of logical volumes (GROUP/NAME, regular expressions) that verify ignores; '' for none",
            metavar="PATTERN,...", form=Form.WORDS,
        ),
        check=values.check_patterns, change=values.as_tuple, heading="lvm reserved volumes",
        is_general=True,
    )] = ()
    file_storage_dir: Annotated[str, ClusterParam(
        given=str, field=Field("directory for disks in files", metavar="DIRECTORY"),
        check=values.check_directory, initial="/srv/ganeti/file-storage", heading="file storage path",
        is_general=True, ssconf="file_storage_dir", used_by_instances=True, reaches_host=True,
    )] = ""
    shared_file_storage_dir: Annotated[str, ClusterParam(
        given=str, field=Field("directory for disks in files that all nodes see", metavar="DIRECTORY"),
        check=values.check_directory, initial="/srv/ganeti/shared-file-storage",
        heading="shared file storage path", is_general=True, ssconf="shared_file_storage_dir",
        used_by_instances=True, reaches_host=True,
    )] = ""
    prealloc_wipe_disks: Annotated[bool, ClusterParam(
        given=bool,
        field=Field("fill new space of volumes with zeros before a guest sees it", form=Form.YES_NO),
        heading="preallocation wipe disks", is_general=True,
    )] = True
    """Files read as zeros anyway; volumes have what was in their place before (G12)."""
    default_iallocator: Annotated[str, ClusterParam(
        given=str,
        field=Field(
            "default allocators, tried in order, for example mine,hail; for one type of request hail/relocate=mine; '' for none",
            "-I", "NAME",
        ),
        check=parse_defaults, initial=BUILT_IN, heading="default instance allocator", is_general=True,
        refers_to=RefersTo.ALLOCATORS,
    )] = ""
    """Lists of allocators by kind of request, see `ganeti.model.iallocator.parse_defaults`."""
    default_iallocator_params: Annotated[Params, ClusterParam(
        given=Params,
        field=Field(
            "options for allocators, for example no-capacity-checks or ignore-soft-errors",
            metavar="k=v,...", form=Form.KEY_VALUES,
        ),
        check=values.check_allocator_options, change=values.merged,
        heading="default instance allocator parameters", is_general=True,
    )] = {}
    """Options for allocators, by name without dashes."""
    remote_hvparams: Annotated[tuple[str, ...], ClusterParam(
        given=list[str],
        field=Field(
            "hypervisor parameters that users of the REST interface may set although they reach the"
            " host; '' for none",
            metavar="NAME,...", form=Form.WORDS,
        ),
        check=values.check_remote, change=values.as_set, heading="parameters of the host for REST users",
        is_general=True, reaches_host=True, upstream="",
    )] = ()
    """Hypervisor parameters that reach the host but may be set through the REST interface nevertheless."""
    uid_pool: Annotated[tuple[UidRange, ...], ClusterParam(
        given=list[UidRange],
        field=Field(
            "pool of user ids for guests of KVM, for example 61000-61199; '' for none",
            metavar="UID,LOW-HIGH,...", form=Form.UIDS,
        ),
        change=lambda _old, given, _name: tuple(CheckUidPool(given)), heading="uid pool", is_general=True,
        ssconf="uid_pool", lines=lambda ranges: FormatUidPool(ranges, separator="\n"), reaches_host=True,
    )] = ()
    """First and last user id of ranges that guests run under (S103)."""
    enabled_data_collectors: Annotated[dict[str, bool], ClusterParam(
        given=dict[str, bool | None],
        field=Field(
            "enable or disable collectors of the monitoring daemon, for example lv=false",
            metavar="NAME=BOOL,...", form=Form.SWITCHES,
        ),
        check=check_enabled, change=values.merged, with_defaults=enabled,
        heading="data collectors", is_general=True, upstream="data_collectors",
    )] = {}
    """Collectors that were enabled or disabled; see `ganeti.model.data_collectors`."""
    data_collector_interval: Annotated[dict[str, int], ClusterParam(
        given=dict[str, int | None],
        field=Field(
            "shortest interval of each collector, for example drbd=30",
            metavar="NAME=SECONDS,...", form=Form.INTERVALS,
        ),
        check=check_intervals, change=values.merged, with_defaults=intervals_us, upstream="data_collectors",
    )] = {}
    """Microseconds."""
    enabled_disk_templates: Annotated[tuple[str, ...], ClusterParam(
        given=list[str],
        field=Field("disk templates; the first is the default", metavar="NAME,...", form=Form.WORDS),
        check=values.one_of(DISK_TEMPLATES), change=values.as_tuple, heading="enabled disk templates",
        is_general=True, used_by_instances=True,
    )] = ENABLED_BY_DEFAULT
    ndparams: Annotated[Params, ClusterParam(
        given=Params,
        field=Field("node parameters", "! --node-parameters", metavar="k=v,...", form=Form.KEY_VALUES),
        change=values.changed_ndparams, with_defaults=lambda value: layered(NODE_DEFAULTS, value),
        heading="Default node parameters",
    )] = {}
    beparams: Annotated[dict[str, Params], ClusterParam(
        given=Params,
        field=Field(
            "backend parameters, for example memory=512m,vcpus=1",
            "! -B --backend-parameters", metavar="k=v,...", form=Form.BACKEND,
        ),
        change=values.changed_beparams, with_defaults=_with_defaults({values.DEFAULT: BACKEND_DEFAULTS}),
        heading="Default instance parameters",
    )] = {}
    nicparams: Annotated[dict[str, Params], ClusterParam(
        given=Params,
        field=Field(
            "NIC parameters, for example mode=bridged,link=br0",
            "! -N --nic-parameters", metavar="k=v,...", form=Form.KEY_VALUES,
        ),
        change=values.changed_nicparams, with_defaults=_with_defaults({values.DEFAULT: NIC_DEFAULTS}),
        heading="Default nic parameters", used_by_instances=True,
    )] = {}
    diskparams: Annotated[dict[str, Params], ClusterParam(
        given=dict[str, Params],
        field=Field(
            "parameters of a disk template, for example plain:stripes=2; '-k' resets k to the default; may be repeated",
            "! -D --disk-parameters", metavar="TEMPLATE:k=v,...", form=Form.NAMED,
        ),
        change=values.changed_diskparams,
        with_defaults=_with_defaults({name: dict(TEMPLATES[name].params) for name in sorted(TEMPLATES)}),
        heading="Default disk parameters",
    )] = {}
    ipolicy: Annotated[Params, ClusterParam(
        given=Params, field=Field("what instances may be", form=Form.POLICY), change=values.changed_policy,
        with_defaults=lambda value: layered(IPOLICY_DEFAULTS, value),
        heading="Instance policy - limits for instances",
    )] = {}
    maintain_node_health: Annotated[bool, ClusterParam(
        given=bool,
        field=Field("whether nodes that are marked offline stop their guests", form=Form.YES_NO),
        heading="maintain node health", is_general=True, ssconf="maintain_node_health",
    )] = False
    compression_tools: Annotated[tuple[str, ...], ClusterParam(
        given=list[str],
        field=Field("compression tools for exports, imports and moves", metavar="NAME,...", form=Form.WORDS),
        check=values.one_of(TOOLS), change=values.as_set, heading="compression tools", is_general=True,
    )] = TOOLS
    confd_on_all_nodes: Annotated[bool, ClusterParam(
        given=bool,
        field=Field(
            "whether ganeti-confd also runs on nodes that are not master candidates; each gets a copy of the configuration without secrets, and an own key",
            form=Form.YES_NO,
        ),
        heading="confd on all nodes", is_general=True, ssconf="confd_on_all_nodes", upstream="",
    )] = False
    encrypt_backups: Annotated[bool, ClusterParam(
        given=bool,
        field=Field("whether incremental backups are encrypted unless a request says otherwise", form=Form.YES_NO),
        heading="encrypt backups", is_general=True, upstream="",
    )] = False
    """With it, unencrypted backups are only read on request: an attacker may have put them in place of encrypted ones."""
    check_domain_signatures: Annotated[bool, ClusterParam(
        given=bool,
        field=Field(
            "whether moves need a cluster with the same domain secret",
            form=Form.YES_NO,
        ),
        heading="check domain signatures", is_general=True, reaches_host=True, upstream="",
    )] = True
    """Without it any user who may submit jobs here can send instances to any cluster (S207)."""
    # fmt: on


CLUSTER_PARAMS: dict[str, ClusterParam] = {
    name: get_args(note)[1] for name, note in ClusterParams.__annotations__.items()
}
"""Every parameter, by its name."""


class UnknownParam(NamedTuple):
    """A parameter of upstream that this implementation lacks: clients name it and read a value."""

    request: str = ""
    """Its name in a request, which accepts only an empty value."""
    info: str = ""
    """Its name in QueryClusterInfo."""
    value: Any = None
    """The value there."""


UNKNOWN_PARAMS = (
    UnknownParam("hv_state"),
    UnknownParam("disk_state"),
    UnknownParam("osparams_private_cluster"),
    UnknownParam("max_tracked_jobs"),
    UnknownParam("modify_etc_hosts"),
    UnknownParam("gluster_storage_dir", "gluster_storage_dir", value=""),
    UnknownParam("install_image", "install_image", value=""),
    UnknownParam("instance_communication_network", "instance_communication_network", value=""),
    UnknownParam("zeroing_image", "zeroing_image", value=""),
    UnknownParam("enabled_user_shutdown", "enabled_user_shutdown", value=False),
    UnknownParam(info="modify_ssh_setup", value=False),
    UnknownParam(info="ssh_key_bits", value=2048),
    UnknownParam(info="ssh_key_type", value="rsa"),
)
