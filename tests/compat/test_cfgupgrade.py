"""What our `cfgupgrade` writes of a genuine old configuration is what the original's own reader wants."""

import json
import shutil
from pathlib import Path

import pytest

from ganeti.tools.cfgupgrade import main
from ganeti.upstream.choices import Choices
from ganeti.upstream.forms import parse
from ganeti.upstream.reading import translate
from ganeti.upstream.writing import document_of
from tests.support.debian_ganeti import opened_by_the_original
from tests.support.htools_fixtures import fixture_path
from tests.unit.upstream import sample

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


@pytest.mark.requirement("G28")
def test_the_original_opens_an_export_with_a_disk_that_no_instance_has(tmp_path: Path) -> None:
    document = sample.document()
    guest = document["instances"][sample.GUEST]
    guest["disks"] = []
    document["cluster"]["candidate_pool_size"] = 1
    imported = translate(parse(sample.encoded(document)), Choices(keep_unknown=True))
    written, _ = document_of(imported.objects)
    path = tmp_path / "config.data"
    path.write_text(json.dumps(written))
    said = opened_by_the_original(path)
    assert (said["wrong"], said["upgrade"]) == ([], 0)
    assert said["instances"][guest["name"]] == "diskless"
