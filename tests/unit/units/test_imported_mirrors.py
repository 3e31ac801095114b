"""What verify says of mirrored devices that the original has opened."""

import pytest

from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import NodeUuid
from ganeti.rpc.procedures.disks import MirroredDevice
from ganeti.units.cluster.mirror_findings import device_findings
from ganeti.upstream import forms
from ganeti.upstream.choices import Choices
from ganeti.upstream.reading import translate
from tests.unit.upstream import sample


@pytest.mark.requirement("G28")
@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        ("resource0", 0, []),
        (sample.DISK, 0, []),
        ("resource1", 1, ["minor 1 is in use by resource1", "minor 0 (disk/0 of web1"]),
        ("resource0", 1, ["minor 1 is in use by resource0", "minor 0 (disk/0 of web1"]),
    ],
)
def test_a_resource_with_upstreams_name_is_the_disk_of_its_minor(
    name: str, number: int, said: list[str]
) -> None:
    found = translate(forms.parse(sample.encoded(sample.document())), Choices(keep_unknown=True))
    snapshot = Snapshot.of(1, found.cluster, others=found.others)
    node = snapshot.nodes[NodeUuid(sample.NODES[0])]
    devices = {NodeUuid(node.uuid): [MirroredDevice(name=name, number=number, state="")]}
    texts = [one.text for one in device_findings([snapshot], [node], devices, ())]
    assert len(texts) == len(said)
    assert all(text.startswith(start) for text, start in zip(texts, said, strict=True))
