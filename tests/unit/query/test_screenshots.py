"""Pictures of screens: from the instance's node, bounded, and only pictures."""

import base64
import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import PrereqError
from ganeti.model.objects import Node
from ganeti.query.screenshots import SIZE_LIMIT, ScreenshotSource
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.hardware import Screenshot
from tests.unit.query.cluster import snapshot

PNG = b"\x89PNG\r\n\x1a\n"


class OneNode:
    """Answers every call with the same bytes."""

    def __init__(self, png: bytes) -> None:
        self.png = png
        self.asked: list[tuple[str, str]] = []

    async def call(self, node: Node, procedure: Procedure[Any, Any], args: Any) -> Any:
        self.asked.append((node.name, args.instance.name))
        return Screenshot(png=self.png)


async def test_the_primary_node_is_asked_for_the_picture() -> None:
    node, found = OneNode(PNG + b"x"), snapshot()
    instance = next(iter(found.instances.values()))
    text = await ScreenshotSource(node).screenshot(found, instance.name)
    assert base64.b64decode(text) == PNG + b"x"
    assert node.asked == [(found.nodes[instance.primary_node].name, instance.name)]


@pytest.mark.requirement("A32")
@pytest.mark.parametrize("png", [b"", b"GIF89a", PNG + bytes(SIZE_LIMIT)])
async def test_what_is_no_picture_or_too_large_is_refused(png: bytes) -> None:
    found = snapshot()
    name = next(iter(found.instances.values())).name
    with pytest.raises(PrereqError, match="not a picture"):
        await ScreenshotSource(OneNode(png)).screenshot(found, name)


async def test_an_offline_node_and_an_unknown_instance_are_reported() -> None:
    found = snapshot()
    instance = next(iter(found.instances.values()))
    nodes = {uuid: replace(one, offline=True) for uuid, one in found.nodes.items()}
    offline = dataclasses.replace(found, tables={**found.tables, Node: nodes})
    with pytest.raises(PrereqError, match="offline"):
        await ScreenshotSource(OneNode(PNG)).screenshot(offline, instance.name)
    with pytest.raises(PrereqError):
        await ScreenshotSource(OneNode(PNG)).screenshot(found, "nobody")
