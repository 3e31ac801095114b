"""The OpenID provider: its addresses and keys, and the exchange of a code for the user's claims."""

import asyncio
import datetime as dt
import logging
import secrets
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from ganeti.base.clock import Clock
from ganeti.base.errors import InputError
from ganeti.base.http import aiohttp
from ganeti.model.rest_users import User
from ganeti.web import openid
from ganeti.web.refusals import Refusal
from ganeti.web.users import basic_header, day_of
from ganeti.web.watched_file import WatchedFile

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

TIMEOUT_S = 10.0
ANSWER_LIMIT = 1024 * 1024
KEPT_S = 3600.0
"""Time after which the provider's addresses and keys are requested again."""
RETRY_S = 30.0
"""Minimum time between two requests for keys because a token names an unknown key."""
BROKEN_S = 5.0
"""Time for which a provider that cannot be used is not asked again."""
_DISCOVERY = "/.well-known/openid-configuration"
_JWT_PARTS = 3

log = logging.getLogger(__name__)


class _Document(msgspec.Struct, frozen=True):
    """What the provider publishes about itself (OpenID Connect Discovery 1.0)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods_supported: list[str] = msgspec.field(
        default_factory=lambda: ["client_secret_basic"]
    )


class _Tokens(msgspec.Struct, frozen=True):
    """The answer to a code."""

    id_token: str
    access_token: str = ""


class _Provider:
    """One provider, as long as the settings are the same."""

    def __init__(self, settings: openid.Settings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._document: _Document | None = None
        self._keys: KeySet | None = None
        self._read_at = self._keys_at = self._broken_at = 0.0
        self._why_broken: Refusal | None = None
        self._turn = asyncio.Lock()

    async def document(self) -> _Document:
        """Return what the provider has published in the last hour; Refusal (502)."""
        async with self._turn:
            now = self._clock.monotonic()
            if self._document is None or now - self._read_at > KEPT_S:
                if self._why_broken is not None and now - self._broken_at < BROKEN_S:
                    raise self._why_broken
                address = self.settings.issuer.rstrip("/") + _DISCOVERY
                found = await self._request("GET", address, _Document)
                if found.issuer != self.settings.issuer:
                    raise self._broken(f"it says that it is the issuer {found.issuer!r:.100}")
                try:
                    for field in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                        openid.check_address(getattr(found, field), field)
                    if found.userinfo_endpoint:
                        openid.check_address(found.userinfo_endpoint, "userinfo_endpoint")
                except InputError as err:
                    raise self._broken(str(err)) from err
                self._document, self._read_at = found, now
            return self._document

    async def claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token that this provider has signed and that is valid now; InputError, Refusal."""
        keys = await self._keys_for(token)
        from joserfc import jwt  # noqa: PLC0415 - most clusters have no provider
        from joserfc.errors import JoseError  # noqa: PLC0415

        for key in keys:
            try:
                claims = jwt.decode(token, key, algorithms=openid.ALGORITHMS).claims
            except (JoseError, ValueError, TypeError):
                continue
            openid.check_times(claims, self._clock.time())
            return claims
        raise InputError("no key of the provider has signed the token")

    async def tokens(self, code: str, secret: str) -> _Tokens:
        """Exchange a code; InputError if the provider refuses it."""
        settings, document = self.settings, await self.document()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_uri,
            "code_verifier": openid.verifier_of(secret),
        }
        headers = {}
        if not settings.client_secret:
            form["client_id"] = settings.client_id
        elif "client_secret_basic" in document.token_endpoint_auth_methods_supported:
            pair = quote(settings.client_id, safe=""), quote(settings.client_secret, safe="")
            headers["Authorization"] = basic_header(*pair)
        else:
            form |= {"client_id": settings.client_id, "client_secret": settings.client_secret}
        found: _Tokens = await self._request(
            "POST", document.token_endpoint, _Tokens, form, headers
        )
        return found

    async def with_groups(self, claims: dict[str, Any], access_token: str) -> dict[str, Any]:
        """Return the claims, with those of the provider's user information if the groups or the name are missing."""
        document, settings = await self.document(), self.settings
        has_all = openid.groups_in(settings, claims) is not None and settings.name_claim in claims
        if has_all or not document.userinfo_endpoint or not access_token:
            return claims
        headers = {"Authorization": f"Bearer {access_token}"}
        more = await self._request(
            "GET", document.userinfo_endpoint, dict[str, Any], headers=headers
        )
        if more.get("sub") != claims["sub"]:
            raise InputError("the provider's user information is of another user")
        return {**more, **claims}

    async def _keys_for(self, token: str) -> list[Any]:
        """Return the keys that may have signed a token; InputError for a malformed token."""
        from joserfc import jws  # noqa: PLC0415
        from joserfc.errors import JoseError  # noqa: PLC0415

        try:
            header = jws.extract_compact(token.encode()).headers()
        except (JoseError, ValueError, UnicodeError) as err:
            raise InputError("the token is not a signed JWT") from err
        name = header.get("kid")
        now = self._clock.monotonic()
        is_old = self._keys is None or now - self._keys_at > KEPT_S
        if is_old or (not self._matching(name) and now - self._keys_at > RETRY_S):
            await self._read_keys()
        return self._matching(name)

    def _matching(self, name: Any) -> list[Any]:
        keys = self._keys.keys if self._keys is not None else []
        return [one for one in keys if name is None or one.kid == name]

    async def _read_keys(self) -> None:
        from joserfc.errors import JoseError  # noqa: PLC0415
        from joserfc.jwk import KeySet  # noqa: PLC0415

        document = await self.document()
        found = await self._request("GET", document.jwks_uri, dict[str, Any])
        usable = [
            one
            for one in found.get("keys") or []
            if isinstance(one, dict) and one.get("kty") != "oct" and one.get("use", "sig") == "sig"
        ]
        try:
            self._keys = KeySet.import_key_set({"keys": usable})
        except (JoseError, ValueError, TypeError, KeyError) as err:
            raise self._broken(f"its keys are invalid: {err}") from err
        self._keys_at = self._clock.monotonic()

    async def _request(
        self,
        method: str,
        address: str,
        kind: Any,
        form: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Return the decoded answer; InputError for an answer 4xx, Refusal (502) without a valid answer."""
        context = self._tls()
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as client,
                client.request(
                    method, address, data=form, headers={"Accept": "application/json", **(headers or {})},
                    ssl=context, allow_redirects=False,
                ) as answer,
            ):  # fmt: skip
                body = await _read(answer)
                status = answer.status
        except (aiohttp.ClientError, OSError, TimeoutError) as err:
            raise self._broken(
                f"{address} does not answer: {str(err) or type(err).__name__}"
            ) from err
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and form is not None:
            raise InputError(f"the provider refuses the login: {_why(body, status)}")
        if status != HTTPStatus.OK:
            raise self._broken(f"{address} answers with the status {status}")
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as err:  # msgspec.ValidationError is one
            raise self._broken(f"the answer of {address} is invalid: {err}") from err

    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.settings.ca_file or None)
        except OSError as err:
            why = f"ca_file {self.settings.ca_file} cannot be used: {err.strerror or err}"
            raise self._broken(why) from err

    def _broken(self, why: str) -> Refusal:
        log.error("OpenID provider %s: %s", self.settings.issuer, why)
        explain = f"the OpenID provider {self.settings.issuer} cannot be used: {why}"
        self._why_broken = Refusal(HTTPStatus.BAD_GATEWAY, explain)
        self._broken_at = self._clock.monotonic()
        return self._why_broken


class OpenId:
    """Logins by a provider; without a settings file there are none."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file: WatchedFile[openid.Settings | None] = WatchedFile(
            path, openid.parse_settings, None, "no user can log in by OpenID Connect"
        )
        self._clock = clock
        self._current: _Provider | None = None
        self.refresh = self._file.refresh

    @property
    def settings(self) -> openid.Settings | None:
        """Return the present settings, None without."""
        return self._file.value

    async def begin(self) -> tuple[str, str]:
        """Return the provider's address for a new attempt, and the attempt's secret; Refusal (404, 502)."""
        provider = self._provider()
        secret = secrets.token_urlsafe(32)
        document = await provider.document()
        url = openid.authorization_url(provider.settings, document.authorization_endpoint, secret)
        return url, secret

    async def finish(self, code: str, state: str, secret: str) -> tuple[User, list[str]]:
        """Return the user of a code and the user's groups; InputError for a wrong one, Refusal (404, 502)."""
        provider = self._provider()
        settings = provider.settings
        if not openid.is_state(secret, state):
            raise InputError("the login began in another window or browser; begin again")
        tokens = await provider.tokens(code, secret)
        claims = await provider.claims(tokens.id_token)
        openid.check_issued(claims, settings, settings.client_id)
        openid.check_attempt(claims, settings, secret)
        claims = await provider.with_groups(claims, tokens.access_token)
        return openid.user_in(settings, claims, self._today)

    async def of_token(self, token: str) -> User | None:
        """Return the user of a provider's token that a REST client has sent; None if it is not valid for REST."""
        settings = self.settings
        if settings is None or not settings.audience or token.count(".") != _JWT_PARTS - 1:
            return None
        provider = self._provider()
        try:
            claims = await provider.claims(token)
            openid.check_issued(claims, settings, settings.audience)
            return openid.user_in(settings, claims, self._today)[0]
        except InputError as err:
            log.info("a token is refused: %s", err.message)
            return None

    def user_of(self, name: str, groups: list[str]) -> User | None:
        """Return the user of a session with the present rights; None if the groups have none any more."""
        settings = self.settings
        return openid.user_of(settings, name, groups, self._today) if settings is not None else None

    @property
    def _today(self) -> dt.date:
        return day_of(self._clock.time())

    def _provider(self) -> _Provider:
        settings = self.settings
        if settings is None:
            why = "this cluster has no OpenID provider; log in with a name and a password"
            raise Refusal(HTTPStatus.NOT_FOUND, why)
        if self._current is None or self._current.settings is not settings:
            self._current = _Provider(settings, self._clock)
        return self._current


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for part in answer.content.iter_any():
        body += part
        if len(body) > ANSWER_LIMIT:
            raise aiohttp.ClientPayloadError(f"the answer has more than {ANSWER_LIMIT} bytes")
    return body


def _why(body: bytes, status: int) -> str:
    """Return the error that the provider names (RFC 6749, 5.2)."""
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        answer = None
    if not isinstance(answer, dict):
        return f"status {status}"
    return " ".join(
        str(answer[one])[:200] for one in ("error", "error_description") if one in answer
    )
