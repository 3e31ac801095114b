"""What the package brings besides the programs: units, manual pages, maintainer scripts."""

import configparser
import importlib.util
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from ganeti.base.paths import Paths

TOP = Path(__file__).resolve().parents[2]
UNITS = sorted((TOP / "packaging" / "systemd").glob("*.service"))

RIGHTS = {"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETGID", "CAP_SETUID"}
"""What is left of root's to a daemon that only gets its files ready with them."""


SCRIPTS = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["scripts"]
PROGRAMS_WITHOUT_PAGE = {
    "ganeti-masterd": "started by its unit",
    "ganeti-noded": "started by its unit",
    "ganeti-guard": "started by the node daemon",
    "ganeti-node-join": "the page of gnt-node tells of it",
}


def script(name: str) -> ModuleType:
    """A module of scripts/."""
    spec = importlib.util.spec_from_file_location(name, TOP / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(text: str, fallback: str) -> tuple[str, str, str]:
    """What scripts/roff_pages.py makes of a page."""
    made: tuple[str, str, str] = script("roff_pages").page(text, fallback)
    return made


def unit(path: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment, method-assign] # names as they are
    found.read(path)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_every_unit_runs_a_program_of_the_project(path: Path) -> None:
    service = unit(path)["Service"]
    place, _, name = service["ExecStart"].split()[0].rpartition("/")
    assert place == "@PREFIX@/bin"
    assert name in SCRIPTS
    if service.get("Type") == "oneshot":
        return
    # It says itself that it serves, and is ended where it stands still.
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    if path.stem == "ganeti-guard":
        assert "WatchdogSec" not in service, "if it stands still its device resets the machine"
        return
    assert int(service["WatchdogSec"]) > 60
    if path.stem != "ganeti-noded":
        assert service["NoNewPrivileges"] == "yes"
        assert service["ProtectSystem"] in ("full", "strict")
        assert service["UMask"] == "0027"
    if path.stem not in ("ganeti-noded", "ganeti-mond"):
        assert set(service["CapabilityBoundingSet"].split()) == RIGHTS


def test_pages_are_made_for_man() -> None:
    name, section, roff = page(
        "# thing(1): does it\n\nWith `--an-option` and **care**,\n.see [that](x.md).\n\n## Files\n\n"
        "| | |\n|---|---|\n| `/a\\|b` | one |\n\n- first\n- second\n\n    $ thing '-x'\n",
        "other",
    )
    assert (name, section) == ("thing", "1")
    lines = roff.split("\n")
    assert "thing \\- does it" in lines
    assert "With \\fB\\-\\-an\\-option\\fR and \\fBcare\\fR," in lines
    assert "\\&.see that." in lines
    assert ".SH Files" in lines
    assert lines[lines.index(".TP") + 1 :][:2] == ["\\fB/a|b\\fR", "one"]
    assert lines.count(".IP \\(bu 4") == 2
    assert "$ thing \\(aq\\-x\\(aq" in lines


@pytest.mark.parametrize(
    "path", sorted((TOP / "docs" / "man").glob("*.md")), ids=lambda path: path.stem
)
def test_every_page_has_a_name_and_a_summary(path: Path) -> None:
    name, section, roff = page(path.read_text(), "")
    assert name == path.stem
    assert section in "178"
    summary = roff.split(".SH NAME\n")[1].split("\n")[0].partition("\\- ")[2]
    assert 5 < len(summary) < 300


@pytest.mark.parametrize("name", ["debian/postinst", "debian/prerm", "debian/postrm"])
def test_maintainer_scripts_are_sound(name: str) -> None:
    done = subprocess.run(["sh", "-n", str(TOP / "packaging" / name)], check=False)
    assert done.returncode == 0


def test_removing_the_package_keeps_what_belongs_to_a_cluster() -> None:
    text = (TOP / "packaging" / "debian" / "postrm").read_text()
    removed = [line for line in text.splitlines() if "rm -rf" in line]
    assert [line.strip() for line in removed] == ["rm -rf @HOST_PATHS@"]
    # What stands there is the list of `ganeti.tools.leave_host`, which has a test of its own.
    for name in ("register", "node.pem", "state.db"):
        assert f"/var/lib/ganeti/{name}" in text


def test_tools_are_where_the_original_has_them(tmp_path: Path) -> None:
    links = script("tool_links")
    links.link("/opt/bin", tmp_path)
    links.link("/opt/ganeti/bin", tmp_path)
    place = tmp_path / "usr/lib/ganeti/tools"
    assert (place / "move-instance").readlink() == Path("/opt/ganeti/bin/move-instance")
    assert set(links.TOOLS.values()) <= SCRIPTS.keys()


def test_every_program_has_a_manual_page() -> None:
    pages = {path.stem for path in (TOP / "docs" / "man").glob("*.md")}
    assert SCRIPTS.keys() - pages - PROGRAMS_WITHOUT_PAGE.keys() == set()


def test_every_program_completes_its_options() -> None:
    scripts = script("completions").scripts()
    assert scripts.keys() == SCRIPTS.keys()
    subprocess.run(["bash", "-n"], input="\n".join(scripts.values()), text=True, check=True)
    assert "gnt-instance list --no-headers -o name" in scripts["gnt-instance"]
    assert "-F _longopt lvmstrap" in scripts["lvmstrap"]


@pytest.mark.requirement("S238")
def test_unit_of_confd_starts_where_either_key_is() -> None:
    lines = (TOP / "packaging" / "systemd" / "ganeti-confd.service").read_text().splitlines()
    keys = (Paths().confd_key, Paths().own_confd_key)
    assert [line for line in lines if line.startswith("ConditionPathExists=")] == [
        f"ConditionPathExists=|{key}" for key in keys
    ]


def test_unit_of_the_master_starts_on_a_new_candidate() -> None:
    """The promotion stores the authority's key, and the daemon's first start creates the state."""
    lines = (TOP / "packaging" / "systemd" / "ganeti-masterd.service").read_text().splitlines()
    assert f"ConditionPathExists=|{Paths().authority_key}" in lines
