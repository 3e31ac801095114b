import mimetypes
import ssl
import subprocess
import sys

from ganeti.base import http_web

PROGRAM = """
import ssl
from ganeti.base.http import aiohttp

context = aiohttp.connector._SSL_CONTEXT_VERIFIED
assert context.verify_mode is ssl.CERT_REQUIRED
assert context.cert_store_stats() == {"x509": 0, "crl": 0, "x509_ca": 0}
"""


def test_connection_without_its_own_context_trusts_no_authority() -> None:
    # A process of its own: another test may have imported aiohttp in its own way.
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False)
    assert done.returncode == 0


def test_after_the_import_all_is_as_before() -> None:
    assert "web" in http_web.__all__
    assert ssl.SSLContext.load_default_certs.__module__ == "ssl"
    assert "/etc/mime.types" in mimetypes.knownfiles
