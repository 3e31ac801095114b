import mimetypes
import re
import ssl
import subprocess
import sys
from pathlib import Path

import ganeti
from ganeti.base import http

SOURCE = Path(ganeti.__file__).parent


PROGRAM = """
import ssl
from ganeti.base.http import aiohttp

context = aiohttp.connector._SSL_CONTEXT_VERIFIED
assert context.verify_mode is ssl.CERT_REQUIRED
assert context.cert_store_stats() == {"x509": 0, "crl": 0, "x509_ca": 0}
"""


def test_a_connection_without_a_context_of_its_own_trusts_nobody() -> None:
    # A process of its own: another test may have imported aiohttp in its own way.
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_after_the_import_all_is_as_before() -> None:
    assert http.__all__ == ["aiohttp", "web"]
    assert ssl.SSLContext.load_default_certs.__module__ == "ssl"
    assert "/etc/mime.types" in mimetypes.knownfiles


def test_aiohttp_is_imported_in_one_place() -> None:
    imports = re.compile(r"^\s*(?:import aiohttp|from aiohttp)", re.MULTILINE)
    importing = [path for path in SOURCE.rglob("*.py") if imports.search(path.read_text())]
    assert [str(path.relative_to(SOURCE)) for path in importing] == ["base/http.py"]
