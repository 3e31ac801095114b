"""The join token, and the proofs that both ends of a join know its secret.

The token is one line: an address, the fingerprint of a certificate made for this join, and a
secret. The secret is never sent. Each end proves it over both nonces and the fingerprint, so a
proof is useless in any other conversation.
"""

import base64
import hashlib
import hmac
import ipaddress

import msgspec

from ganeti.base.errors import InputError
from ganeti.base.tls import is_fingerprint
from ganeti.model import wire

TOKEN_LIMIT = 1000
SECRET_BYTES = 32


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """The data that the administrator carries from the new node to the master."""

    address: str
    port: int
    fingerprint: str
    secret: str
    version: int = 1

    def encode(self) -> str:
        """Return one line without spaces."""
        return base64.urlsafe_b64encode(wire.encode(self)).decode("ascii").rstrip("=")

    def __repr__(self) -> str:
        return f"JoinToken({self.address}:{self.port})"


def decode_token(text: str) -> JoinToken:
    """Return the token in a line of text; InputError for anything else."""
    line = text.strip()[: TOKEN_LIMIT + 1]
    try:
        data = base64.b64decode(line + "=" * (-len(line) % 4), altchars=b"-_", validate=True)
        token = wire.decode(data, JoinToken)
        ipaddress.ip_address(token.address)
    except (InputError, ValueError) as err:
        what = "this is not a join token: pass the line that ganeti-node-join printed"
        raise InputError(what) from err
    is_sound = (
        token.version == 1
        and 0 < token.port < 1 << 16
        and is_fingerprint(token.fingerprint)
        and len(token.secret) == 2 * SECRET_BYTES
    )
    if not is_sound:
        what = "this join token is damaged, or of another version of this software"
        raise InputError(what)
    return token


def proof(token: JoinToken, who: str, nonces: tuple[str, str]) -> str:
    """Return the proof of `who` (`master` or `node`) for the secret.

    `nonces` are (the node's, the master's).
    """
    text = "\n".join(("ganeti-join-1", who, token.fingerprint, *nonces))
    return hmac.new(token.secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def is_proof(token: JoinToken, who: str, nonces: tuple[str, str], shown: str) -> bool:
    """Compare a proof in constant time."""
    return hmac.compare_digest(proof(token, who, nonces).encode(), shown.encode())
