"""The cluster's key in its files."""

from pathlib import Path

import pytest

from ganeti.base.errors import ConfigurationError, InputError
from ganeti.base.paths import Paths
from ganeti.base.permissions import problems
from ganeti.confd.keys import confd_keys, distributed_keys, keep_key, new_key


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.data.mkdir(parents=True)
    return made


@pytest.mark.requirement("S51")
def test_only_its_owner_reads_it_and_no_two_are_the_same(paths: Paths) -> None:
    key = new_key()
    assert key != new_key()
    assert len(key.strip()) == 64
    assert keep_key(paths, key)
    assert not keep_key(paths, key)
    assert paths.confd_key.stat().st_mode & 0o777 == 0o600
    assert confd_keys(paths) == (key,)
    paths.confd_key.chmod(0o644)
    assert any("hmac.key" in one for one in problems(paths, None))
    with pytest.raises(ConfigurationError, match="chmod 600"):
        confd_keys(paths)
    assert keep_key(paths, key)
    assert confd_keys(paths) == (key,)


@pytest.mark.requirement("S51")
def test_the_former_key_counts_until_it_is_dropped(paths: Paths) -> None:
    assert keep_key(paths, b"n" * 32, b"o" * 32)
    assert confd_keys(paths) == (b"n" * 32, b"o" * 32)
    assert distributed_keys(paths) == (b"n" * 32, b"o" * 32)
    assert keep_key(paths, b"n" * 32)
    assert confd_keys(paths) == (b"n" * 32,)


def test_the_master_of_an_older_cluster_makes_one(paths: Paths) -> None:
    key, former = distributed_keys(paths)
    assert confd_keys(paths) == (key,)
    assert former == b""


@pytest.mark.parametrize("key", [b"short", b"x" * 2000])
def test_what_is_no_key_is_refused(paths: Paths, key: bytes) -> None:
    with pytest.raises(InputError):
        keep_key(paths, key)
    assert not paths.confd_key.exists()


def test_a_master_that_has_none_leaves_a_candidate_its_own(paths: Paths) -> None:
    """One of an older release gives out nothing: then nothing is taken away either."""
    keep_key(paths, b"n" * 32)
    assert not keep_key(paths, b"")
    assert confd_keys(paths) == (b"n" * 32,)
