"""Keys and certificates that are files of the master."""

import re
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from ganeti import ssconf
from ganeti.base import certificates
from ganeti.base.errors import InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.renew_files import (
    FileRenewal,
    ensure_rest_pair,
    make_first_files,
    renew_files,
)

NOW = 1_700_000_000.0


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.data.mkdir(parents=True)
    ssconf.write_set(made, 1, {"cluster_name": "cluster.example.com", "master_ip": "192.0.2.7"})
    return made


def loads(path: Path) -> bool:
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
    return path.stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("F39", "S206")
def test_new_ones_can_be_used_and_are_for_root_alone(paths: Paths) -> None:
    wanted = FileRenewal(rapi=True, spice=True, domain_secret=True)
    said = renew_files(paths, wanted, "cluster.example.com", NOW)
    assert len(said) == 4
    assert loads(paths.rapi_certificate)
    assert loads(paths.spice_certificate)
    assert paths.spice_authority.read_bytes() in paths.spice_certificate.read_bytes()
    first = paths.cluster_domain_secret.read_bytes()
    assert re.fullmatch(rb"[0-9a-f]{40}\n", first)
    renew_files(paths, wanted, "cluster.example.com", NOW)
    assert paths.cluster_domain_secret.read_bytes() != first


@pytest.mark.requirement("S206")
def test_a_new_cluster_has_a_secret_and_a_certificate_for_its_name_and_address(
    paths: Paths,
) -> None:
    make_first_files(paths, NOW)
    assert re.fullmatch(rb"[0-9a-f]{40}\n", paths.cluster_domain_secret.read_bytes())
    assert paths.cluster_domain_secret.stat().st_mode & 0o777 == 0o600
    first = paths.rapi_certificate.read_bytes()
    assert loads(paths.rapi_certificate)
    secret = paths.cluster_domain_secret.read_bytes()
    make_first_files(paths, NOW)
    assert paths.cluster_domain_secret.read_bytes() == secret
    ensure_rest_pair(paths, NOW)
    assert paths.rapi_certificate.read_bytes() == first
    renew_files(paths, FileRenewal(rapi=True), "unused", NOW)
    for pair in (first, paths.rapi_certificate.read_bytes()):
        found = x509.load_pem_x509_certificate(pair[pair.index(b"-----BEGIN CERT") :])
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert "cluster.example.com" in names.get_values_for_type(x509.DNSName)
        assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]


@pytest.mark.requirement("S206")
def test_files_of_another_owner_are_used_unchanged(paths: Paths, tmp_path: Path) -> None:
    key = certificates.new_key()
    pair = tmp_path / "pair.pem"
    pair.write_bytes(key + certificates.self_signed(key, "x", NOW, 1e9))
    authority = tmp_path / "authority.pem"
    authority.write_bytes(certificates.self_signed(key, "x", NOW, 1e9))
    secret = tmp_path / "secret"
    secret.write_bytes(b"0123456789abcdef0123456789abcdef01234567\n")
    wanted = FileRenewal(
        rapi_file=str(pair),
        spice_file=str(pair),
        spice_authority_file=str(authority),
        domain_secret_file=str(secret),
    )
    renew_files(paths, wanted, "c", NOW)
    assert paths.rapi_certificate.read_bytes() == pair.read_bytes()
    assert paths.spice_authority.read_bytes() == authority.read_bytes()
    assert paths.cluster_domain_secret.read_bytes() == secret.read_bytes()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"rapi": True, "rapi_file": "x"}, InputError),
        ({"domain_secret": True, "domain_secret_file": "x"}, InputError),
        ({"spice_file": "x"}, InputError),
        ({"spice_authority_file": "x"}, InputError),
        ({"rapi_file": "/nowhere/x"}, PrereqError),
        ({"rapi_file": "junk"}, PrereqError),
        ({"domain_secret_file": "short"}, PrereqError),
        ({"domain_secret_file": "binary"}, PrereqError),
        ({"domain_secret_file": "huge"}, PrereqError),
        ({"spice_file": "pair", "spice_authority_file": "stranger"}, PrereqError),
    ],
)
def test_what_cannot_be_used_changes_nothing(
    paths: Paths, tmp_path: Path, fields: dict[str, str | bool], error: type[Exception]
) -> None:
    key, other = certificates.new_key(), certificates.new_key()
    contents = {
        "junk": b"junk",
        "short": b"abc",
        "binary": b"\xff" * 40,
        "huge": b"x" * 70_000,
        "pair": key + certificates.self_signed(key, "x", NOW, 1e9),
        "stranger": certificates.self_signed(other, "y", NOW, 1e9),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    given: dict[str, Any] = {
        name: str(tmp_path / value) if value in contents else value
        for name, value in fields.items()
    }
    before = sorted(paths.data.iterdir())
    with pytest.raises(error):
        renew_files(paths, FileRenewal(**given), "c", NOW)
    assert sorted(paths.data.iterdir()) == before
