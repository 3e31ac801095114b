from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.rest import RestRig, rest_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RestRig]:
    async with rest_rig(tmp_path) as one:
        yield one
