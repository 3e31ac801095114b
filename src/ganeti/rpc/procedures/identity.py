"""Procedures that renew a node's own key and certificate, and the authorities it trusts."""

from ganeti.rpc.procedures.form import NORMAL_S, QUICK_S, Message, Nothing, Procedure


class KeyRequest(Message, frozen=True, kw_only=True):
    """The certificate request for a node's next key; the key itself stays on the node."""

    fingerprint: str
    """Fingerprint of the node's present certificate."""
    request: str
    """PEM"""


class CertificateArgs(Message, frozen=True, kw_only=True):
    """The certificate for the node's next key (PEM)."""

    certificate: str


class AuthoritiesArgs(Message, frozen=True, kw_only=True):
    """Certificates of the accepted authorities (PEM), the present signer first."""

    authorities: tuple[str, ...]


NODE_KEY_REQUEST = Procedure("node_key_request", Nothing, KeyRequest, NORMAL_S, changes=True)

NODE_CERTIFICATE_SWITCH = Procedure(
    "node_certificate_switch", CertificateArgs, Nothing, NORMAL_S, changes=True
)

AUTHORITIES_WRITE = Procedure("authorities_write", AuthoritiesArgs, Nothing, QUICK_S, changes=False)
