"""Finding and judging OS definitions."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.base.errors import GuestOsError, InputError
from ganeti.guest_os.definitions import (
    check_hypervisor,
    check_variant,
    chosen_api,
    find_all,
    load,
    read,
    split_name,
)

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a definition: scripts by name, other files with their text."""

    def _make(name: str = "tiny", *, scripts: str = "create verify", **files: str | None) -> Path:
        directory = tmp_path / "os" / name
        directory.mkdir(parents=True)
        for script in scripts.split():
            (directory / script).write_text("#!/bin/sh\n")
            (directory / script).chmod(0o755)
        for file, text in {"ganeti_api_version": "20\n", **files}.items():
            if text is not None:
                (directory / file.replace("__", ".")).write_text(text)
        return directory

    return _make


def test_a_full_definition_is_read(make: Make) -> None:
    info = read(
        make(
            scripts="create export import rename verify",
            ganeti_api_version="15\n20\n10\n",
            variants__list="# the usual ones\nsmall\n\nlarge\n",
            parameters__list="ns1    The first name server\ntrack\t\tstable or testing\nbare\n",
            os_version="1.2\nmore text\n",
            hypervisors="kvm\nfake\n",
        )
    )
    assert info.problem == ""
    assert info.name == "tiny"
    assert info.api_versions == [20, 15, 10]
    assert info.variants == ["small", "large"]
    assert info.parameters == [
        ("ns1", "The first name server"),
        ("track", "stable or testing"),
        ("bare", ""),
    ]
    assert info.version == "1.2"
    assert info.scripts == ["create", "export", "import", "rename", "verify"]
    assert info.hypervisors == ["kvm", "fake"]


@pytest.mark.requirement("S125", "S126")
@pytest.mark.parametrize(
    ("scripts", "problem"),
    [
        ("create", ""),
        ("create rename", ""),
        ("create export import", ""),
        ("create export import rename verify", ""),
        ("", "create is missing"),
        ("export import rename", "create is missing"),
        ("create export", "require each other"),
        ("create import", "require each other"),
    ],
)
def test_only_create_is_mandatory_and_export_and_import_come_together(
    make: Make, scripts: str, problem: str
) -> None:
    info = read(make(scripts=scripts, ganeti_api_version="10"))
    assert problem in info.problem
    assert bool(info.problem) == bool(problem)
    if not problem:
        assert info.scripts == scripts.split()


@pytest.mark.requirement("S146")
@pytest.mark.parametrize(("versions", "usable"), [("20", False), ("20\n15", False), ("10", True)])
def test_verify_is_asked_for_by_api_20(make: Make, versions: str, usable: bool) -> None:
    info = read(make(scripts="create", ganeti_api_version=versions))
    assert (info.problem == "") is usable


@pytest.mark.requirement("S137")
@pytest.mark.parametrize(
    ("text", "chosen"),
    [("20\n10", 20), ("5\n20", 20), ("10", 10), ("15\n10\n", 15), ("20\n999\n15", 20)],
)
def test_the_greatest_version_that_both_speak_is_chosen(make: Make, text: str, chosen: int) -> None:
    info = read(make(ganeti_api_version=text, variants__list="default"))
    assert info.problem == ""
    assert chosen_api(info) == chosen


@pytest.mark.requirement("S137")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("5\n", "declares 5, this implementation supports 10, 15, 20"),
        ("", "declares none"),
        ("twenty", "'twenty' is not a number"),
        ("20\n-1", "'-1' is not a number"),
        ("²0", "is not a number"),
        (None, "ganeti_api_version is missing"),
    ],
)
def test_versions_that_cannot_be_spoken_make_a_definition_unusable(
    make: Make, text: str | None, problem: str
) -> None:
    assert problem in read(make(ganeti_api_version=text)).problem


@pytest.mark.requirement("S119")
@pytest.mark.parametrize(
    ("versions", "variants", "problem"),
    [
        ("15", "a\nb\n", ""),
        ("15", "", "variants.list is empty"),
        ("15", "# none\n", "variants.list is empty"),
        ("15", None, "variants.list is missing"),
        ("15\n20", None, ""),
        ("20", None, ""),
        ("10", None, ""),
        ("20", "a\n../b\n", "'../b' is not a name"),
        ("20", "a b\n", "'a b' is not a name"),
        ("20", "a\na\n", "contains a name twice"),
    ],
)
def test_variants_are_mandatory_for_api_15_alone(
    make: Make, versions: str, variants: str | None, problem: str
) -> None:
    info = read(make(ganeti_api_version=versions, variants__list=variants))
    assert problem in info.problem
    assert bool(info.problem) == bool(problem)


@pytest.mark.requirement("S143")
def test_parameters_that_differ_only_in_case_are_an_error(make: Make) -> None:
    info = read(make(parameters__list="NS1 first\nns1 second\n"))
    assert "contains ns1 twice" in info.problem


@pytest.mark.requirement("S142", "S143")
def test_parameter_names_are_used_in_lower_case(make: Make) -> None:
    assert read(make(parameters__list="RootFS_size \t the size\n")).parameters == [
        ("rootfs_size", "the size")
    ]


@pytest.mark.requirement("A46")
@pytest.mark.parametrize("name", ["a-b", "LD=x", "ü", "a.b", "x" * 65, "%s"])
def test_a_parameter_that_cannot_be_a_variable_is_an_error(make: Make, name: str) -> None:
    assert "is not a name" in read(make(parameters__list=f"{name} text\n")).problem


@pytest.mark.requirement("S141")
@pytest.mark.parametrize(
    ("text", "version"), [("7\nrest\n", "7"), ("", ""), (None, ""), ("a\x1b[31mb\n", "a[31mb")]
)
def test_the_first_line_of_os_version_counts(make: Make, text: str | None, version: str) -> None:
    assert read(make(os_version=text)).version == version


@pytest.mark.requirement("S138")
def test_a_hypervisor_that_is_not_named_is_refused(make: Make) -> None:
    info = read(make(hypervisors="kvm\n"))
    check_hypervisor(info, "kvm")
    with pytest.raises(GuestOsError, match="does not support xen-pvm, only kvm"):
        check_hypervisor(info, "xen-pvm")
    check_hypervisor(read(make("anywhere")), "xen-pvm")


def test_scripts_and_files_in_wrong_hands_are_refused(make: Make) -> None:
    directory = make()
    (directory / "create").chmod(0o757)
    assert "create is writable by every user" in read(directory).problem
    (directory / "create").chmod(0o644)
    assert "create is not an executable file" in read(directory).problem
    (directory / "create").chmod(0o755)
    directory.chmod(0o777)
    assert "tiny is writable by every user" in read(directory).problem


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the privileges of root")
def test_a_script_of_another_user_is_refused(make: Make) -> None:
    directory = make()
    os.chown(directory / "verify", 12345, -1)
    assert "verify belongs to user 12345" in read(directory).problem


def test_a_pipe_or_a_huge_file_in_place_of_a_list_does_not_hang_or_fill_memory(
    make: Make,
) -> None:
    directory = make()
    os.mkfifo(directory / "variants.list")
    (directory / "os_version").write_text("x" * 100_000)
    problem = read(directory).problem
    assert "variants.list is not a regular file" in problem
    assert "os_version is larger" in problem


def test_of_two_definitions_with_one_name_the_first_counts(tmp_path: Path) -> None:
    for place, version in (("first", "1"), ("second", "2")):
        directory = tmp_path / place / "tiny"
        directory.mkdir(parents=True)
        (directory / "os_version").write_text(version)
    search = [tmp_path / "missing", tmp_path / "first", tmp_path / "second"]
    assert [info.version for info in find_all(search)] == ["1"]


def test_all_definitions_are_listed_with_their_problems(make: Make, tmp_path: Path) -> None:
    make("good")
    make("bad", scripts="")
    make("not a name")
    (tmp_path / "os" / "file").touch()
    found = find_all([tmp_path / "os"])
    assert [(info.name, bool(info.problem)) for info in found] == [("bad", True), ("good", False)]


def test_loading_reports_where_it_looked_or_what_is_wrong(make: Make, tmp_path: Path) -> None:
    make("good")
    make("bad", scripts="")
    search = [tmp_path / "os"]
    assert load(search, "good").name == "good"
    with pytest.raises(GuestOsError, match=r"OS none does not exist on this node; searched .*/os"):
        load(search, "none")
    with pytest.raises(GuestOsError, match=r"OS bad in .* cannot be used: script create"):
        load(search, "bad")


@pytest.mark.requirement("A40", "G24")
@pytest.mark.parametrize(
    "name", ["../tiny", "/etc", ".", "..", "", "a/b", "tiny\n", "-x", "$(id)", "ti ny", "a\0"]
)
def test_a_name_that_is_no_name_is_refused(make: Make, tmp_path: Path, name: str) -> None:
    make()
    with pytest.raises(InputError):
        load([tmp_path / "os"], name)
    with pytest.raises(InputError):
        split_name(name)


@pytest.mark.requirement("S120")
@pytest.mark.parametrize(
    ("variant", "complaint"),
    [("small", None), ("large", None), ("", "needs a variant"), ("huge", "does not declare")],
)
def test_exactly_one_declared_variant_is_chosen(
    make: Make, variant: str, complaint: str | None
) -> None:
    info = read(make(variants__list="small\nlarge\n"))
    if complaint is None:
        check_variant(info, variant, force=False)
    else:
        with pytest.raises(GuestOsError, match=complaint):
            check_variant(info, variant, force=False)


@pytest.mark.requirement("S120")
def test_two_variants_are_no_name() -> None:
    assert split_name("tiny+small") == ("tiny", "small")
    assert split_name("tiny") == ("tiny", "")
    with pytest.raises(InputError):
        split_name("tiny+small+large")


@pytest.mark.requirement("S122")
def test_an_undeclared_variant_can_be_forced_but_not_left_out(make: Make) -> None:
    info = read(make(variants__list="small\n"))
    check_variant(info, "huge", force=True)
    with pytest.raises(GuestOsError, match=r"needs a variant: tiny\+small"):
        check_variant(info, "", force=True)


def test_an_os_without_variants_takes_none(make: Make) -> None:
    info = read(make())
    check_variant(info, "", force=False)
    with pytest.raises(GuestOsError, match="has no variants"):
        check_variant(info, "small", force=False)
