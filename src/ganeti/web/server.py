"""HTTPS for the REST interface: TLS, and answers in JSON to what is not HTTP."""

import ssl
from http import HTTPStatus
from pathlib import Path

from ganeti.base.errors import HostError
from ganeti.base.http_server import HttpServer, Limits
from ganeti.base.http_web import web
from ganeti.web.application import Application, refused
from ganeti.web.refusals import Refusal

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def tls_context(certificate: Path) -> ssl.SSLContext:
    """Return a TLS context: TLS 1.2 or later, forward secret authenticated ciphers, no renegotiation (F33)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_ciphers(CIPHERS)
    try:
        context.load_cert_chain(certificate)
    except OSError as err:  # ssl.SSLError is one
        why = err.strerror or str(err)
        raise HostError(f"the certificate and key in {certificate} cannot be used: {why}") from err
    return context


def rest_server(application: Application, limits: Limits | None = None) -> HttpServer:
    """Return the server of the REST interface; a request ends when its client hangs up."""
    return HttpServer(application.answer, _refuse, limits, cancels=True)


def _refuse(status: HTTPStatus, why: str) -> web.Response:
    return refused(Refusal(status, why))
