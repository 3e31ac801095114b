"""What each daemon does not import, because it would stay in its memory for nothing."""

import subprocess
import sys

import pytest

ABSENT = {
    "masterd": ("cryptography", "aiohttp.web", "numpy"),
    "noded": ("cryptography", "numpy"),
    "etcd": ("cryptography", "aiohttp"),
    "confd": ("cryptography", "aiohttp"),
    "mond": ("cryptography",),
}


@pytest.mark.parametrize("daemon", ABSENT)
def test_daemon_does_not_import_what_it_may_never_need(daemon: str) -> None:
    source = f"import sys, ganeti.daemons.{daemon}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert set(ABSENT[daemon]) & set(done.stdout.split()) == set()
