"""`gnt-cluster init` and `import` that were killed while they made daemons and files: what they say helps."""

import asyncio
import sys
from pathlib import Path

import pytest

from ganeti.base.node_files import Lifetime, existing
from ganeti.base.pidfile import pid_file
from ganeti.bootstrap.daemons import MASTERD, NODED
from tests.cluster.nodes import Nodes, TestNode

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
RUN = "import sys; from ganeti.cli.gnt_cluster import main; main()"
MOMENTS = ["node.pem", "register", NODED, MASTERD]
"""The file, or the daemon, whose first sign ends the command."""


async def command(node: TestNode, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, *words, env=node.environment, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    said, _ = await process.communicate()
    return process.returncode, said.decode()


def sign_of(node: TestNode, moment: str) -> Path:
    return (
        pid_file(node.paths.run, moment) if moment in (NODED, MASTERD) else node.paths.data / moment
    )


@pytest.mark.parametrize(
    "moment", [pytest.param(one, marks=[] if one == NODED else pytest.mark.soak) for one in MOMENTS]
)
async def test_an_init_that_was_killed_can_be_made_good(nodes: Nodes, moment: str) -> None:
    node = nodes.new()
    init = ["-c", RUN, "init", "--enabled-hypervisors=fake", f"--primary-ip={node.address}",
            f"--shared-file-storage-dir={node.paths.root}/shared", "c.example.com"]  # fmt: skip
    process = await command(node, *init)
    while not sign_of(node, moment).exists():  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.002)
    process.kill()
    await process.communicate()
    status, said = await ended(await command(node, *init))
    if status:
        assert "node-cleanup --yes-do-it" in said
        status, said = await ended(
            await command(node, "-m", "ganeti.tools.node_cleanup", "--yes-do-it", "--no-backup")
        )
        assert status == 0, said
        assert not existing(node.paths, Lifetime.CLUSTER)
        assert node.daemons.status(NODED).process is None
        status, said = await ended(await command(node, *init))
    assert status == 0, said
    status, said = await ended(await command(node, "-c", RUN, "verify"))
    assert status == 0, said
