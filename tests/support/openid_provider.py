"""An OpenID provider on loopback: logs everybody in at once, and issues what a test tells it to."""

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import msgspec
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from ganeti.base.certificates import for_rest, new_key
from ganeti.base.http_server import HttpServer, serving
from ganeti.base.http_web import web
from ganeti.web.server import tls_context

CLIENT, SECRET = "ganeti", "a client's secret / with +"


def keys() -> dict[str, Any]:
    """A private key for each kind of signature."""
    return {
        "RS256": RSAKey.generate_key(2048, {"kid": "rsa"}),
        "ES256": ECKey.generate_key("P-256", {"kid": "ec"}),
        "Ed25519": OKPKey.generate_key("Ed25519", {"kid": "okp"}),
    }


@dataclass
class Provider:
    """The provider; a test changes its fields between requests."""

    directory: Path
    issuer: str = ""
    keys: dict[str, Any] = field(default_factory=keys)
    algorithm: str = "RS256"
    claims: dict[str, Any] = field(default_factory=dict)
    """Claims of each token beside those of the protocol, or instead of them."""
    of_user: dict[str, Any] | None = None
    """Answer of the user information; None: the provider has none."""
    document: dict[str, Any] = field(default_factory=dict)
    """What replaces entries of the discovery document."""
    methods: list[str] = field(default_factory=lambda: ["client_secret_basic"])
    make_token: Callable[["Provider", dict[str, Any]], str] | None = None
    requests: list[str] = field(default_factory=list)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def authority(self) -> Path:
        return self.directory / "provider.pem"

    def token(self, **more: Any) -> str:
        """A token with these claims; None removes one."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.issuer, "aud": CLIENT, "sub": "subject-1", "iat": now, "exp": now + 300,
            **more, **self.claims,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.make_token is not None:
            return self.make_token(self, claims)
        key = self.keys[self.algorithm]
        header = {"alg": self.algorithm, "kid": key.kid}
        return jwt.encode(header, claims, key, algorithms=[self.algorithm])

    def settings(self, **more: Any) -> str:
        """The file `rapi_openid.yaml` for this provider."""
        return msgspec.json.encode({
            "issuer": self.issuer, "client_id": CLIENT, "client_secret": SECRET,
            "address": "https://localhost", "ca_file": str(self.authority),
            "roles": {"admins": "write", "tenants": "operator, name=web*"}, **more,
        }).decode()  # fmt: skip

    def log_in(self, query: str) -> str:
        """The address to which the user's browser is sent back."""
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        self.requests.append(path)
        if path == "/.well-known/openid-configuration":
            return web.json_response(self._document())
        if path == "/keys":
            public = KeySet(list(self.keys.values())).as_dict(private=False)
            return web.json_response(public)
        if path == "/authorize":
            return web.Response(status=303, headers={"Location": self.log_in(query)})
        if path == "/token":
            return self._exchanged(request, await request.text())
        if path == "/userinfo" and request.headers.get("Authorization") == "Bearer opaque":
            return web.json_response(self.of_user)
        return web.Response(status=404)

    def _document(self) -> dict[str, Any]:
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "token_endpoint_auth_methods_supported": self.methods,
        }
        if self.of_user is not None:
            found["userinfo_endpoint"] = f"{self.issuer}/userinfo"
        return {**found, **self.document}

    def _exchanged(self, request: web.BaseRequest, body: str) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(body).items()}
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None:
            wrong = {"error": "invalid_grant", "error_description": "unknown code"}
            return web.json_response(wrong, status=400)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
        assert form["redirect_uri"] == asked["redirect_uri"]
        if "client_secret_basic" in self.methods:
            pair = "ganeti:a%20client%27s%20secret%20%2F%20with%20%2B"
            expected = "Basic " + base64.b64encode(pair.encode()).decode()
            assert request.headers["Authorization"] == expected
        else:
            assert (form["client_id"], form["client_secret"]) == (CLIENT, SECRET)
        token = self.token(nonce=asked["nonce"])
        answer = {"id_token": token, "access_token": "opaque", "token_type": "Bearer"}
        return web.json_response(answer)


@asynccontextmanager
async def openid_provider(directory: Path) -> AsyncIterator[Provider]:
    """A provider, as long as the block runs."""
    provider = Provider(directory)
    key = new_key()
    certificate = for_rest(key, ["localhost"], ["127.0.0.1"], time.time())
    await asyncio.to_thread(provider.authority.write_bytes, key + certificate)
    server = HttpServer(provider.answer, lambda status, why: web.Response(text=why, status=status))
    async with serving(server, "127.0.0.1", 0, tls_context(provider.authority)) as port:
        provider.issuer = f"https://localhost:{port}"
        yield provider
