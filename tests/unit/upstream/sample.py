"""Configurations of the original, made by hand and generated."""

import json
import uuid
from typing import Any

from hypothesis import strategies as st

from ganeti.upstream.forms import derived_uuid

Document = dict[str, Any]

CLUSTER = "11111111-0000-4000-8000-000000000001"
NODES = ("22222222-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002")
GROUP = "33333333-0000-4000-8000-000000000001"
NETWORK = "44444444-0000-4000-8000-000000000001"
GUEST = "66666666-0000-4000-8000-000000000001"
DISK, PLAIN = "88888888-0000-4000-8000-000000000001", "88888888-0000-4000-8000-000000000002"
TIMES = {"ctime": 1343869045.5, "mtime": 1361964122.25}
SPEC = {
    "cpu-count": 1,
    "disk-count": 1,
    "disk-size": 1024,
    "memory-size": 128,
    "nic-count": 1,
    "spindle-use": 1,
}
BITS = "1" + "0" * 6 + "11" + "0" * 246 + "1"
"""First, last, gateway, and one that others use."""


def document() -> Document:
    """A cluster of 3.0 with what most clusters have: KVM, mirrored disks, a network, parameters of their own."""
    return {
        "version": 3000000, "serial_no": 7, **TIMES,
        "cluster": {
            "uuid": CLUSTER, "serial_no": 41, **TIMES, "tags": ["prod"],
            "cluster_name": "cluster.example.com", "master_node": NODES[0],
            "master_ip": "192.0.2.9", "master_netdev": "eth0", "master_netmask": 24,
            "primary_ip_family": 2, "volume_group_name": "xenvg",
            "enabled_hypervisors": ["kvm"], "enabled_disk_templates": ["drbd", "plain", "file"],
            "hvparams": {"kvm": {"kernel_path": "", "migration_bandwidth": 4}, "lxc": {"cpu_mask": ""}},
            "os_hvp": {"debian": {"kvm": {"acpi": False}}},
            "beparams": {"default": {"vcpus": 2}},
            "nicparams": {"default": {"mode": "bridged", "link": "br7"}},
            "ndparams": {"cpu_speed": 2, "oob_program": "/usr/local/bin/oob"},
            "diskparams": {"drbd": {"resync-rate": 1024}, "gluster": {"host": "127.0.0.1"}},
            "ipolicy": {"vcpu-ratio": 3, "disk-templates": ["drbd", "plain", "gluster"]},
            "osparams": {"debian": {"suite": "bookworm"}},
            "hidden_os": ["old"], "blacklisted_os": ["bad"], "uid_pool": [[61000, 61099]],
            "mac_prefix": "aa:bb:cc", "candidate_pool_size": 3, "reserved_lvs": ["xenvg/root"],
            "file_storage_dir": "/srv/ganeti/files", "shared_file_storage_dir": None,
            "default_iallocator": "hail", "tcpudp_port_pool": [11001], "highest_used_port": 11003,
            "data_collectors": {"drbd": {"active": False, "interval": 7000000.0}},
            "modify_etc_hosts": True, "max_tracked_jobs": 25, "rsahostkeypub": "KEY",
            "secret_of_the_future": {"a": 1},
        },
        "nodes": {
            node: {
                "uuid": node, "name": f"node{number}.example.com", "serial_no": 2, **TIMES,
                "primary_ip": f"192.0.2.{number}", "secondary_ip": f"198.51.100.{number}",
                "group": GROUP, "master_candidate": number == 1, "ndparams": {}, "tags": [],
                "offline": False, "drained": False, "master_capable": True, "vm_capable": True,
                "powered": True,
            }
            for number, node in enumerate(NODES, 1)
        },
        "nodegroups": {
            GROUP: {
                "uuid": GROUP, "name": "default", "serial_no": 3, **TIMES, "alloc_policy": "preferred",
                "ndparams": {"spindle_count": 2}, "diskparams": {"plain": {"stripes": 2}},
                "ipolicy": {"vcpu-ratio": 2.5}, "tags": [],
                "networks": {NETWORK: {"mode": "bridged", "link": "br9", "vlan": ""}},
            }
        },
        "networks": {
            NETWORK: {
                "uuid": NETWORK, "name": "lan", "serial_no": 1, "network": "203.0.113.0/24",
                "gateway": "203.0.113.7", "mac_prefix": "aa:bb:dd", "tags": ["dmz"],
                "ext_reservations": BITS, "reservations": bits(256, 20),
            }
        },
        "instances": {
            one["uuid"]: one
            for one in (
                instance(1, [DISK], nics=[nic(1, ip="203.0.113.20", network=NETWORK,
                             nicparams={"mode": "bridged", "link": "br9", "vlan": ""})]),
                instance(2, [PLAIN], nics=[nic(2, nicparams={"link": "br1"})], network_port=11003,
                         hvparams={"boot_order": "cdrom", "cdrom_image_path": "/data/iso/a.iso"}),
            )
        },
        "disks": {
            DISK: {**mirrored(DISK, port=11002), "name": "root"},
            PLAIN: volume(PLAIN, "vol.disk0"),
        },
        "filters": {
            "55555555-0000-4000-8000-000000000001": {
                "uuid": "55555555-0000-4000-8000-000000000001", "watermark": 12, "priority": 1,
                "predicates": [["jobid", [">", "id", "watermark"]]], "action": ["RATE_LIMIT", 3],
                "reason_trail": [["gnt-filter", "quiet", 1363620258000000000]],
            }
        },
    }  # fmt: skip


def bits(size: int, *numbers: int) -> str:
    """A bit for each address."""
    return "".join("1" if number in numbers else "0" for number in range(size))


def instance(number: int, disks: list[str], **fields: Any) -> Document:
    """An instance on the first node."""
    return {
        "uuid": f"66666666-0000-4000-8000-{number:012x}", "name": f"web{number}.example.com",
        "serial_no": number, **TIMES, "primary_node": NODES[0], "os": "debian+base",
        "hypervisor": "kvm", "hvparams": {}, "beparams": {"maxmem": 512}, "osparams": {"a": "b"},
        "osparams_private": {"password": "s3cret"}, "admin_state": "up",
        "admin_state_source": "admin", "disks": disks, "disks_active": True, "nics": [], "tags": [],
        **fields,
    }  # fmt: skip


def nic(number: int, **fields: Any) -> Document:
    """An interface."""
    mac = "aa:bb:cc:" + number.to_bytes(3, "big").hex(":")
    uuid = f"77777777-0000-4000-8000-{number:012x}"
    return {"uuid": uuid, "mac": mac, "nicparams": {}, **fields}


def volume(uuid: str, name: str, **fields: Any) -> Document:
    """A logical volume on the first node."""
    return {
        "uuid": uuid, "dev_type": "plain", "logical_id": ["xenvg", name], "size": 1024, "params": {},
        "mode": "rw", "iv_name": "disk/0", "nodes": [NODES[0]], "serial_no": 1, **TIMES, **fields,
    }  # fmt: skip


def mirrored(uuid: str, *, port: int, minors: tuple[int, int] = (0, 5)) -> Document:
    """A disk on both nodes."""
    below = [volume(derived_uuid(uuid, use), f"{uuid}.disk0_{use}", size=size)
             for use, size in (("data", 1024), ("meta", 128))]  # fmt: skip
    return {
        **volume(uuid, "", dev_type="drbd", nodes=list(NODES), children=below),
        "logical_id": [*NODES, port, *minors, "d3c3fd475fcbaf5fd177fb245ac43b71247ada38"],
    }


def older(new: Document) -> Document:
    """The same as 2.8 had it: names for nodes and instances, disks inside, one pair of bounds, no filters."""
    old: Document = json.loads(json.dumps(new))
    names = {uuid: node["name"] for uuid, node in old["nodes"].items()}
    old["version"] = 2080000
    old["cluster"]["master_node"] = names[old["cluster"]["master_node"]]
    old["cluster"]["ipolicy"] |= {"min": SPEC, "max": {**SPEC, "cpu-count": 9}}
    old["nodes"] = {node["name"]: node for node in old["nodes"].values()}
    disks = old.pop("disks")
    del old["filters"]
    for one in old["instances"].values():
        one["disks"] = [_older_disk(disks[uuid], names) for uuid in one["disks"]]
        one["primary_node"] = names[one["primary_node"]]
        one["disk_template"] = "drbd" if one["disks"][0]["dev_type"] == "drbd8" else "plain"
        for each in one["nics"]:
            del each["uuid"]
    old["instances"] = {one["name"]: one for one in old["instances"].values()}
    return old


def _older_disk(disk: Document, names: dict[str, str]) -> Document:
    words = [names.get(word, word) for word in disk["logical_id"]]
    kind = {"plain": "lvm", "drbd": "drbd8"}[disk["dev_type"]]
    kept = {name: disk[name] for name in ("size", "mode", "iv_name", "params")}
    below = [_older_disk(child, names) for child in disk.get("children", ())]
    return {**kept, "dev_type": kind, "logical_id": words, "physical_id": words, "children": below}


def encoded(given: Document) -> bytes:
    """The file."""
    return json.dumps(given).encode()


_NAMES = st.from_regex(r"[a-z]{1,8}[0-9]{0,2}\.example\.(com|org)", fullmatch=True)
_UUIDS = st.uuids().map(str)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Clusters of any shape that this version can have, in the form of 3.0 or of 2.8."""
    new = document()
    del new["cluster"]["secret_of_the_future"]
    new["cluster"]["enabled_user_shutdown"] = True
    new["cluster"]["prealloc_wipe_disks"] = draw(st.booleans())
    new["cluster"]["tags"] = draw(st.lists(st.from_regex(r"[a-z:.]{1,9}", fullmatch=True)))
    new["cluster"]["candidate_pool_size"] = draw(st.integers(1, 100))
    new["disks"], new["instances"] = {}, {}
    for number in range(draw(st.integers(0, 4))):
        one = instance(number, [], name=f"i{number}-{draw(_NAMES)}")
        one["hvparams"] = draw(_hvparams)
        one["beparams"] = draw(
            st.dictionaries(st.sampled_from(["maxmem", "vcpus"]), st.integers(1, 64))
        )
        one["admin_state"] = draw(st.sampled_from(["up", "down", "offline"]))
        one["primary_node"] = draw(st.sampled_from(NODES))
        one["nics"] = [
            nic(number * 8 + at, uuid=draw(_UUIDS)) for at in range(draw(st.integers(0, 3)))
        ]
        is_mirrored = draw(st.booleans())
        for at in range(draw(st.integers(1, 3))):
            key = str(uuid.UUID(int=(number << 8) + at))
            minors = (number * 4 + at, number * 4 + at + draw(st.integers(0, 3)) * 100)
            new["disks"][key] = {
                **(mirrored(key, port=11100 + number * 4 + at, minors=minors) if is_mirrored
                   else volume(key, f"{key}.disk{at}", nodes=[one["primary_node"]])),
                "iv_name": f"disk/{at}", "mode": draw(st.sampled_from(["rw", "ro"])),
            }  # fmt: skip
            one["disks"].append(key)
        new["instances"][one["uuid"]] = one
    return older(new) if draw(st.booleans()) else new


_hvparams = st.fixed_dictionaries(
    {},
    optional={
        "acpi": st.booleans(),
        "boot_order": st.sampled_from(["disk", "network"]),
        "cpu_mask": st.sampled_from(["all", "0-2:3"]),
        "user_shutdown": st.booleans(),
        "vnc_bind_address": st.sampled_from(["", "192.0.2.1"]),
    },
)
