import datetime as dt
import hashlib
import logging
import re
import statistics
import time
from pathlib import Path

import pytest

from ganeti.base.errors import InputError
from ganeti.model.fields import RefersTo
from ganeti.model.operation import Right
from ganeti.model.rest_rights import parse_options
from ganeti.model.rest_users import REALM, parse_users
from ganeti.web.users import Users
from tests.support.rest import credentials

TODAY = dt.date(2026, 11, 22)
HA1 = hashlib.md5(f"anna:{REALM}:secret".encode(), usedforsecurity=False).hexdigest()
TOKEN = hashlib.sha256(b"a-long-token").hexdigest()


def users(tmp_path: Path, text: str) -> Users:
    path = tmp_path / "users"
    path.write_text(text)
    one = Users(path)
    one.refresh()
    return one


def enters(one: Users, name: str, password: str) -> bool:
    return one.login(credentials(name, password), TODAY) is not None


@pytest.mark.requirement("A5")
@pytest.mark.parametrize(
    "line",
    [
        "anna secret",
        "anna {cleartext}secret",
        f"anna {{HA1}}{HA1}",
        f"anna {{ha1}}{HA1.upper()} read",
        "anna secret write,read\r",
        "  anna   secret   write  ",
        f"anna {{sha256}}{hashlib.sha256(b'secret').hexdigest()}",
    ],
)
def test_each_form_of_password_admits_only_its_user(tmp_path: Path, line: str) -> None:
    one = users(tmp_path, f"# people\n\n{line}\n")
    assert enters(one, "anna", "secret")
    assert not enters(one, "anna", "Secret")
    assert not enters(one, "anna", "")
    assert not enters(one, "Anna", "secret")
    assert not enters(one, "", "secret")


@pytest.mark.requirement("A5")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "anna",
        "anna {rot13}frperg write",
        "anna {HA1}123 write",
        "anna {HA1}" + "z" * 32,
        "anna secret write more",
        "anna secret admin",
        "anna {cleartext}",
        "anna secret write\nanna other read",
        "an:na secret write",
    ],
)
def test_invalid_line_admits_no_user(tmp_path: Path, text: str) -> None:
    one = users(tmp_path, text + "\nbob right read\n")
    for password in ("secret", "other", "", "{cleartext}", HA1):
        assert not enters(one, "anna", password)
    assert enters(one, "bob", "right")


def test_problems_are_reported_without_passwords() -> None:
    _, problems = parse_users("anna hunter2 king\nbob {x}hunter2\ncarl {HA1}hunter2\n")
    assert len(problems) == 3
    assert "hunter2" not in " ".join(problems)


@pytest.mark.requirement("A5")
def test_what_cannot_be_read_leaves_the_users_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = users(tmp_path, "anna secret write\n")
    path = tmp_path / "users"
    path.write_bytes(b"anna \xff\xfe write\n")
    one.refresh()
    assert enters(one, "anna", "secret")
    path.unlink()
    path.mkdir()
    one.refresh()
    assert enters(one, "anna", "secret")
    path.rmdir()
    path.write_text("bob other write\n")
    with caplog.at_level(logging.ERROR):
        one.refresh()
    assert not enters(one, "anna", "secret")
    assert enters(one, "bob", "other")
    path.unlink()
    one.refresh()
    assert not enters(one, "bob", "other")


def test_a_token_needs_no_name_and_ends_with_its_day(tmp_path: Path) -> None:
    one = users(tmp_path, f"ci {{sha256}}{TOKEN} write,until=2026-11-22\n")
    user = one.login("Bearer a-long-token", TODAY)
    assert user is not None
    assert user.name == "ci"
    assert one.login("Bearer a-long-token", TODAY + dt.timedelta(days=1)) is None
    assert one.login("Bearer another", TODAY) is None
    assert one.login("Bearer ", TODAY) is None


@pytest.mark.requirement("A6")
def test_only_the_digest_of_a_token_is_taken_without_a_name(tmp_path: Path) -> None:
    """Otherwise one guess would try the passwords of all users."""
    lines = f"anna secret write\nbob {{cleartext}}other write\ncarl {{HA1}}{HA1} write\n"
    one = users(tmp_path, lines)
    for token in ("secret", "other", "{cleartext}other", HA1):
        assert one.login(f"Bearer {token}", TODAY) is None
    assert enters(one, "anna", "secret")


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic !!!", "Basic YWJj", "Basic YTpiAGM=", "Digest x", "Basic " + "A" * 5000,
     "Basic 🜁"],
)  # fmt: skip
def test_headers_that_make_no_sense_are_refused(tmp_path: Path, header: str) -> None:
    one = users(tmp_path, "anna secret write\n")
    with pytest.raises(InputError):
        one.login(header, TODAY)


@pytest.mark.requirement("A4")
def test_the_scheme_may_be_in_lower_case(tmp_path: Path) -> None:
    one = users(tmp_path, "anna secret write\n")
    assert one.login(credentials("anna").replace("Basic", "basic"), TODAY)


@pytest.mark.requirement("A6")
def test_an_unknown_name_costs_as_much_as_a_wrong_password(tmp_path: Path) -> None:
    one = users(tmp_path, f"anna secret write\nbobb {{HA1}}{HA1}\n")
    headers = [credentials(name, "wrong-password") for name in ("anna", "bobb", "carl")]

    def spread() -> float:
        # Taken in turns, so that other work on this machine slows down all of them alike.
        taken: list[list[int]] = [[], [], []]
        for _ in range(1500):
            for times, header in zip(taken, headers, strict=True):
                begun = time.perf_counter_ns()
                one.login(header, TODAY)
                times.append(time.perf_counter_ns() - begun)
        medians = [statistics.median(times) for times in taken]
        return max(medians) / min(medians)

    assert min(spread() for _ in range(6)) < 1.05


@pytest.mark.requirement("A6")
def test_passwords_are_compared_in_one_way_only() -> None:
    files = {one.__code__.co_filename for one in (parse_users, Users.login)}
    source = "".join(Path(one).read_text() for one in files)
    assert source.count("hmac.compare_digest") == 3
    assert not re.search(r"(password|digest|ha1|sha256|secret|token)\b[^\n]*[=!]= ", source.lower())


def test_roles_and_single_permissions() -> None:
    rights = parse_options(["read", "+instance_reboot", "-instance_remove"])
    assert rights.may(Right.READ, "")
    assert not rights.may(Right.WRITE, "instance_remove")
    assert rights.may(Right.OPERATE, "instance_reboot")
    admin = parse_options(["@admin", "-instance_remove"])
    assert admin.may(Right.WRITE, "instance_create")
    assert not admin.may(Right.WRITE, "instance_remove")
    assert not parse_options([]).may(Right.READ, "")
    assert parse_options(["@readonly"]) == parse_options(["read"])
    with pytest.raises(InputError):
        parse_options(["until=tomorrow"])


def test_a_scope_has_names_and_tags() -> None:
    scope = parse_options(["write", "name=web*", "tag=team:a"]).scope
    assert scope.has("web1.example.com", [])
    assert scope.has("db", ["team:a"])
    assert not scope.has("db", ["team:b"])
    assert not scope.has_name("db")


def test_what_belongs_to_no_instance_is_allowed_by_its_kind() -> None:
    scope = parse_options(["write", "name=web*", "node=node1*", "path=/srv/a/*"]).scope
    assert scope.has_other(RefersTo.NODE, "node1.example.com")
    assert not scope.has_other(RefersTo.GROUP, "node1.example.com")
    assert scope.has_other(RefersTo.PATH, "/srv/a/b/c")
    assert not scope.has_other(RefersTo.PATH, "/srv/a/../b")
    with pytest.raises(InputError, match="requires name= or tag="):
        parse_options(["write", "node=node1"])
