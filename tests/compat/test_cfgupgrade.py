"""What our `cfgupgrade` writes of a genuine old configuration is what the original's own reader wants."""

import json
import shutil
from pathlib import Path

import pytest

from ganeti.tools.cfgupgrade import main
from tests.support.debian_ganeti import opened_by_the_original
from tests.support.htools_fixtures import fixture_path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.mark.parametrize("version", ["2.7", "2.16"])
def test_the_original_opens_what_was_brought_up_to_date(tmp_path: Path, version: str) -> None:
    given = fixture_path(f"cluster_config_{version}.json", "config")
    path = tmp_path / "config.data"
    shutil.copy(given, path)
    assert main([f"--path={tmp_path}", "--force", "--ignore-hostname"]) == 0
    said = opened_by_the_original(path)
    assert (said["version"], said["wrong"], said["upgrade"]) == (True, [], 0)
    names = {one["name"] for one in json.loads(given.read_bytes())["instances"].values()}
    assert set(said["instances"]) == names
