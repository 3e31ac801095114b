"""OpenID Connect: what the administrator has configured, and what a provider's claims mean. No I/O.

A browser logs in by the authorization code flow with PKCE (OpenID Connect Core 1.0, RFC 7636). The page keeps one
secret of the attempt; state, nonce and code verifier are derived from it, so the server stores nothing meanwhile.
"""

import base64
import datetime as dt
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from ganeti.base.errors import InputError
from ganeti.model.rest_rights import Rights, parse_options
from ganeti.model.rest_users import User

PREFIX = "openid:"
"""Begins the name of a user of the provider; no name in the users file has a colon."""
ANY_GROUP = "*"
_ALGORITHMS = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 Ed25519"
ALGORITHMS = tuple(_ALGORITHMS.split())
"""Signatures by a private key of the provider; `none` and shared secrets are never accepted."""
LEEWAY_S = 60
_NAME_LENGTH = 100
_GROUPS_LIMIT = 1000


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file `rapi_openid.yaml`."""

    issuer: str
    """Address of the provider; its tokens carry it."""
    client_id: str
    address: str
    """The console's address as browsers see it; `address` + `/ui/` is registered with the provider."""
    roles: dict[str, str]
    """Options of the users file by group; `*` is everybody."""
    client_secret: str = ""
    label: str = "single sign-on"
    """Name of the provider on the button."""
    scopes: list[str] = msgspec.field(default_factory=lambda: ["openid", "profile"])
    name_claim: str = "preferred_username"
    roles_claim: str = "groups"
    """Claim with the groups: a list or one string; dots lead into objects (`realm_access.roles`)."""
    audience: str = ""
    """Audience of tokens that REST clients may send; '' accepts none."""
    ca_file: str = ""
    """Certificates of the authorities of the provider; '' trusts the system's."""

    @property
    def redirect_uri(self) -> str:
        """Return the address to which the provider sends the browser back."""
        return f"{self.address.rstrip('/')}/ui/"


class _Times(msgspec.Struct, frozen=True):
    exp: float
    nbf: float = 0.0


def parse_settings(text: str) -> Settings:
    """Return the settings; InputError names the wrong field."""
    import yaml  # noqa: PLC0415 - most clusters have no such file

    try:
        settings = msgspec.convert(yaml.safe_load(text), Settings)
    except yaml.YAMLError as err:
        raise InputError(f"it is not YAML: {err}") from err
    except msgspec.ValidationError as err:
        raise InputError(str(err)) from err
    for field in ("issuer", "address"):
        check_address(getattr(settings, field), field)
    if not settings.client_id or not settings.roles:
        raise InputError("client_id and roles must not be empty")
    if settings.audience == settings.client_id:
        why = "it must differ from client_id, or tokens for the console would be passwords for REST"
        raise InputError(why, "audience")
    for group in settings.roles:
        rights_of(settings, [group])
    return settings


def check_address(text: str, field: str) -> None:
    """Raise InputError unless this is an https address."""
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"{text!r:.200} must be an address that begins with https://", field)


def authorization_url(settings: Settings, endpoint: str, secret: str) -> str:
    """Return the address at which the user logs in, for an attempt with this secret."""
    digest = hashlib.sha256(verifier_of(secret).encode()).digest()
    query = {
        "response_type": "code",
        "client_id": settings.client_id,
        "redirect_uri": settings.redirect_uri,
        "scope": " ".join(dict.fromkeys(["openid", *settings.scopes])),
        "state": state_of(secret),
        "nonce": nonce_of(secret),
        "code_challenge": _text_of(digest),
        "code_challenge_method": "S256",
    }
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def state_of(secret: str) -> str:
    """Return the state of an attempt: the provider returns it with the code."""
    return _derived(secret, "state")


def nonce_of(secret: str) -> str:
    """Return the nonce of an attempt: the provider's token must carry it."""
    return _derived(secret, "nonce")


def verifier_of(secret: str) -> str:
    """Return the code verifier of an attempt: without it, the code is useless."""
    return _derived(secret, "verifier")


def check_times(claims: Mapping[str, Any], now: float) -> None:
    """Raise InputError unless the claims are valid now; clocks may differ by a minute."""
    try:
        times = msgspec.convert(claims, _Times)
    except msgspec.ValidationError as err:
        raise InputError(f"the token has no valid times: {err}") from err
    if now > times.exp + LEEWAY_S:
        raise InputError("the token has expired")
    if now < times.nbf - LEEWAY_S:
        raise InputError(
            "the token is not valid yet; compare the clocks of the provider and this host"
        )


def check_issued(claims: Mapping[str, Any], settings: Settings, audience: str) -> None:
    """Raise InputError unless the provider has issued the claims for this audience."""
    if claims.get("iss") != settings.issuer:
        raise InputError(f"the token is of the issuer {claims.get('iss')!r:.100}")
    audiences = _texts(claims.get("aud"))
    if not audience or audience not in audiences:
        raise InputError(f"the token is not for the audience {audience!r:.100}")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise InputError("the token names no subject")


def check_attempt(claims: Mapping[str, Any], settings: Settings, secret: str) -> None:
    """Raise InputError unless an ID token belongs to this attempt of this client."""
    nonce = claims.get("nonce")
    if not isinstance(nonce, str) or not _equal(nonce, nonce_of(secret)):
        raise InputError("the token belongs to another login")
    audiences = _texts(claims.get("aud"))
    if claims.get("azp", settings.client_id) != settings.client_id or (
        len(audiences) > 1 and "azp" not in claims
    ):
        raise InputError("the token was issued to another client")


def is_state(secret: str, state: str) -> bool:
    """Return True if a code with this state answers the attempt."""
    return _equal(state, state_of(secret))


def groups_in(settings: Settings, claims: Mapping[str, Any]) -> list[str] | None:
    """Return the groups in claims; None if they do not have the claim."""
    found: Any = claims
    if settings.roles_claim in claims:
        return _texts(claims[settings.roles_claim])
    for part in settings.roles_claim.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return _texts(found)


def user_in(
    settings: Settings, claims: Mapping[str, Any], today: dt.date
) -> tuple[User, list[str]]:
    """Return the user that claims name, and the user's groups that have rights; InputError without any."""
    name = claims.get(settings.name_claim)
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _NAME_LENGTH:
        raise InputError(
            f"the provider's claim {settings.name_claim} is not a name of 1 to {_NAME_LENGTH} characters"
        )
    known = [one for one in groups_in(settings, claims) or [] if one in settings.roles]
    user = user_of(settings, PREFIX + name, known, today)
    if user is None:
        raise InputError(f"user {name}: none of the user's groups has rights in this cluster")
    return user, known


def user_of(settings: Settings, name: str, groups: Sequence[str], today: dt.date) -> User | None:
    """Return the user with the present rights of these groups; None if they have none, or have them no longer."""
    rights = rights_of(settings, groups)
    return None if rights is None or rights.has_ended(today) else User(name, rights)


def rights_of(settings: Settings, groups: Iterable[str]) -> Rights | None:
    """Return the rights of groups: their options together, like one line of the users file; InputError."""
    known = dict.fromkeys(one for one in (ANY_GROUP, *groups) if one in settings.roles)
    if not known:
        return None
    words = [word for one in known for word in settings.roles[one].split(",")]
    try:
        return parse_options([word.strip() for word in words if word.strip()])
    except InputError as err:
        raise InputError(f"{', '.join(known)}: {err.message}", "roles") from err


def _derived(secret: str, use: str) -> str:
    return _text_of(hmac.digest(secret.encode("utf-8", "surrogateescape"), use.encode(), "sha256"))


def _text_of(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(
        one.encode("utf-8", "surrogateescape"), other.encode("utf-8", "surrogateescape")
    )


def _texts(value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [one for one in found[:_GROUPS_LIMIT] if isinstance(one, str)]
