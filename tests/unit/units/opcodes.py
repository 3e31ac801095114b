"""Opcodes as the tests of units want them."""

from typing import Any

from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.instance import OpInstanceCreate, OpInstanceMigrate
from ganeti.model.opcodes.instance_changes import OpInstanceSetParams

NAME = "web1.example.com"


def create(name: str = NAME, **fields: Any) -> OpInstanceCreate:
    """An instance with two disks and a network interface, installed and started on the first node."""
    given: dict[str, Any] = {
        "instance_name": name,
        "pnode": "node1.example.com",
        "disk_template": "sharedfile",
        "disks": [DiskRequest(size=512), DiskRequest(size=256)],
        "nics": [NicRequest()],
        "os_type": "tiny",
        "beparams": {"memory": 512},
    }
    return OpInstanceCreate(**{**given, **fields})


def migrate(name: str = NAME, **fields: Any) -> OpInstanceMigrate:
    given: dict[str, Any] = {"instance_name": name, "target_node": "node2.example.com"}
    return OpInstanceMigrate(**{**given, **fields})


def modify(name: str = NAME, **fields: Any) -> OpInstanceSetParams:
    return OpInstanceSetParams(instance_name=name, **fields)
