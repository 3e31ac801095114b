"""Each parameter of the cluster goes out and comes back, or the export says that upstream has none."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ganeti.model.cluster_params import CLUSTER_PARAMS
from ganeti.model.objects import Cluster
from ganeti.upstream.choices import Choices
from ganeti.upstream.clusters import UPSTREAM_NAMES
from ganeti.upstream.forms import parse
from ganeti.upstream.reading import translate
from ganeti.upstream.writing import document_of
from tests.unit.upstream import sample

CHANGED: dict[str, Any] = {
    "enabled_hypervisors": ("fake", "kvm"),
    "hvparams": {"kvm": {"acpi": False}},
    "os_hvp": {"debian": {"kvm": {"acpi": False}}},
    "osparams": {"debian": {"suite": "trixie"}},
    "hidden_os": ("one",),
    "blacklisted_os": ("two",),
    "candidate_pool_size": 7,
    "max_running_jobs": 77,
    "mac_prefix": "aa:bb:ee",
    "master_netdev": "br0",
    "master_netmask": 24,
    "use_external_mip_script": True,
    "vg_name": "othervg",
    "drbd_helper": "/usr/bin/true",
    "reserved_lvs": ("xenvg/other",),
    "file_storage_dir": "/srv/other",
    "shared_file_storage_dir": "/srv/shared",
    "prealloc_wipe_disks": False,
    "default_iallocator": "hail",
    "default_iallocator_params": {"mcpu": "64"},
    "remote_hvparams": ("kernel_path",),
    "uid_pool": ((62000, 62009),),
    "enabled_data_collectors": {"drbd": False},
    "data_collector_interval": {"drbd": 9000000},
    "enabled_disk_templates": ("file", "diskless"),
    "ndparams": {"spindle_count": 3},
    "beparams": {"default": {"vcpus": 3}},
    "nicparams": {"default": {"link": "br3"}},
    "diskparams": {"plain": {"stripes": 3}},
    "ipolicy": {"vcpu-ratio": 9.0},
    "maintain_node_health": True,
    "compression_tools": ("gzip", "lz4"),
    "confd_on_all_nodes": True,
    "encrypt_backups": True,
    "check_domain_signatures": False,
}
"""A value that is not the default."""


def cluster() -> Cluster:
    """One whose parameters have their defaults."""
    defaults = {
        one.name: one.default if one.default is not msgspec.NODEFAULT else one.default_factory()
        for one in msgspec.structs.fields(Cluster)
        if one.name in CLUSTER_PARAMS
    }
    return replace(translate(parse(sample.encoded(sample.document())), KEEPING).cluster, **defaults)


KEEPING = Choices(keep_unknown=True)


def test_every_parameter_has_a_value_here() -> None:
    assert CHANGED.keys() == CLUSTER_PARAMS.keys()
    for name, value in CHANGED.items():
        assert getattr(cluster(), name) != value, name


@pytest.mark.parametrize("name", CHANGED)
def test_a_parameter_goes_out_and_comes_back(name: str) -> None:
    ours = replace(cluster(), **{name: CHANGED[name]})
    written, report = document_of([ours])
    if not UPSTREAM_NAMES[name]:
        assert [(one.field, one.text) for one in report.decisions] == [
            (name, "upstream Ganeti has no such parameter")
        ]
        return
    assert report.decisions == []
    assert UPSTREAM_NAMES[name] in written["cluster"]
    back = translate(parse(sample.encoded(written)), KEEPING).cluster
    assert getattr(back, name) == CHANGED[name]


@pytest.mark.parametrize("name", [name for name in CHANGED if UPSTREAM_NAMES[name]])
def test_a_parameter_comes_in_and_goes_out(name: str) -> None:
    document, _ = document_of([replace(cluster(), **{name: CHANGED[name]})])
    imported = translate(parse(sample.encoded(document)))
    assert imported.report.refused == []
    again, _ = document_of(imported.objects)
    theirs = UPSTREAM_NAMES[name]
    assert again["cluster"][theirs] == document["cluster"][theirs]
