"""Logins by an OpenID provider: the whole flow with a provider on loopback, and what must not get in."""

import base64
import hmac
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from ganeti.base.errors import InputError
from ganeti.web import openid
from tests.support.openid_provider import CLIENT, Provider, openid_provider
from tests.support.rest import Answer, RestRig
from tests.unit.web.test_sessions import HERE, cookie_of

ADMINS = {"preferred_username": "alice", "groups": ["admins", "others"]}
VALID = "issuer: https://id.example.com\nclient_id: ganeti\naddress: https://c.example.com:5080\n"


@pytest.fixture
async def provider(tmp_path: Path, rig: RestRig) -> AsyncIterator[Provider]:
    async with openid_provider(tmp_path) as one:
        one.claims = dict(ADMINS)
        configure(one, rig)
        yield one


def configure(provider: Provider, rig: RestRig, **more: Any) -> None:
    path = provider.directory / "openid.yaml"
    path.unlink(missing_ok=True)
    path.write_text(provider.settings(**more))
    assert rig.services.openid.refresh()


async def begin(rig: RestRig) -> tuple[str, str]:
    answer = await rig.ask("POST", "/2/session/openid", user=None, headers=HERE)
    assert answer.status == 200, answer.body
    return answer.json["url"], answer.json["secret"]


def sent_back(provider: Provider, url: str) -> dict[str, str]:
    """The query with which the provider sends the browser to the page."""
    back = urlsplit(provider.log_in(urlsplit(url).query))
    assert back._replace(query="").geturl() == "https://localhost/ui/"
    return {name: values[0] for name, values in parse_qs(back.query).items()}


async def log_in(rig: RestRig, provider: Provider, **instead: str) -> Answer:
    url, secret = await begin(rig)
    body = {**sent_back(provider, url), "secret": secret, **instead}
    return await rig.ask("POST", "/2/session", body, user=None, headers=HERE)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "Ed25519"])
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_user_of_a_group_logs_in(
    rig: RestRig, provider: Provider, algorithm: str, method: str
) -> None:
    provider.algorithm, provider.methods = algorithm, [method]
    answer = await log_in(rig, provider)
    assert answer.status == 200, answer.body
    assert answer.json["user"] == "openid:alice"
    assert answer.json["rights"] == ["known", "read", "operate", "write"]
    browser = {**HERE, "Cookie": cookie_of(answer), "X-Csrf-Token": answer.json["csrf"]}
    path = "/2/instances/web1.example.com/reboot"
    assert (await rig.ask("POST", path, user=None, headers=browser)).status == 200
    assert rig.master.queue.submitters[0].source == "rest:openid:alice"


async def test_request_names_client_and_binds_the_attempt(rig: RestRig, provider: Provider) -> None:
    configure(provider, rig, scopes=["profile", "groups"])
    url, secret = await begin(rig)
    asked = {name: value[0] for name, value in parse_qs(urlsplit(url).query).items()}
    assert asked["scope"] == "openid profile groups"
    assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
    assert asked["code_challenge_method"] == "S256"
    assert secret not in url
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    assert (await begin(rig))[0] != url


async def test_page_gets_the_label_of_a_file_that_was_just_written(
    rig: RestRig, tmp_path: Path
) -> None:
    (tmp_path / "openid.yaml").write_text(VALID + "roles: {a: write}")
    answer = await rig.ask("GET", "/2/session/openid", user=None)
    assert answer.json == {"label": "single sign-on"}


async def test_page_gets_the_label(rig: RestRig, provider: Provider) -> None:
    configure(provider, rig, label="Example login")
    answer = await rig.ask("GET", "/2/session/openid", user=None)
    assert answer.json == {"label": "Example login"}


async def test_without_provider_there_is_no_button_and_no_login(rig: RestRig) -> None:
    assert (await rig.ask("GET", "/2/session/openid", user=None)).json is None
    answer = await rig.ask("POST", "/2/session/openid", user=None, headers=HERE)
    assert answer.status == 404
    body = {"code": "x", "state": "x", "secret": "x"}
    assert (await rig.ask("POST", "/2/session", body, user=None, headers=HERE)).status == 404


@pytest.mark.requirement("A67")
async def test_code_of_another_browser_is_refused(rig: RestRig, provider: Provider) -> None:
    """A page that opens the console with the attacker's code does not log its reader in as the attacker."""
    _, own = await begin(rig)
    refused = await log_in(rig, provider, secret=own)
    assert (refused.status, "another window" in refused.explain) == (401, True)
    assert "/token" not in provider.requests


@pytest.mark.requirement("A1", "A67")
async def test_code_is_valid_once(rig: RestRig, provider: Provider) -> None:
    url, secret = await begin(rig)
    body = {**sent_back(provider, url), "secret": secret}
    assert (await rig.ask("POST", "/2/session", body, user=None, headers=HERE)).status == 200
    again = await rig.ask("POST", "/2/session", body, user=None, headers=HERE)
    assert (again.status, again.explain) == (
        401,
        "the provider refuses the login: invalid_grant unknown code",
    )


def signed(*parts: dict[str, Any]) -> bytes:
    """What the signature of a token with this header and these claims covers."""
    encoded = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in parts]
    return b".".join(encoded)


def unsigned(_: Provider, claims: dict[str, Any]) -> str:
    return signed({"alg": "none"}, claims).decode() + "."


def by_public_key_as_secret(provider: Provider, claims: dict[str, Any]) -> str:
    key = provider.keys["RS256"]
    content = signed({"alg": "HS256", "kid": key.kid}, claims)
    digest = hmac.digest(key.as_pem(private=False), content, "sha256")
    return (content + b"." + base64.urlsafe_b64encode(digest).rstrip(b"=")).decode()


def by_a_stranger(provider: Provider, claims: dict[str, Any]) -> str:
    key = RSAKey.generate_key(2048, {"kid": provider.keys["RS256"].kid})
    return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)


def by_a_key_in_the_token(_: Provider, claims: dict[str, Any]) -> str:
    key = RSAKey.generate_key(2048, {"kid": "own"})
    header = {"alg": "RS256", "jwk": key.as_dict(private=False)}
    return jwt.encode(header, claims, key)


def no_token(_: Provider, _claims: dict[str, Any]) -> str:
    return "a.b"


@pytest.mark.requirement("A1")
@pytest.mark.parametrize(
    "make_token",
    [unsigned, by_public_key_as_secret, by_a_stranger, by_a_key_in_the_token, no_token],
)
async def test_forged_token_is_refused(
    rig: RestRig, provider: Provider, make_token: Callable[[Provider, dict[str, Any]], str]
) -> None:
    configure(provider, rig, audience="api")
    provider.make_token = make_token
    assert (await log_in(rig, provider)).status == 401
    header = {"Authorization": f"Bearer {provider.token(aud='api')}"}
    assert (await rig.ask("GET", "/2/instances", user=None, headers=header)).status == 401
    assert rig.services.sessions.count == 0


@pytest.mark.requirement("A1")
@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://other.example.com"}, "issuer"),
        ({"aud": "another"}, "audience"),
        ({"aud": [CLIENT, "another"]}, "another client"),
        ({"azp": "another"}, "another client"),
        ({"nonce": "x"}, "another login"),
        ({"nonce": None}, "another login"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "no valid times"),
        ({"exp": True}, "no valid times"),
        ({"nbf": 2**40}, "not valid yet"),
        ({"sub": None}, "subject"),
        ({"preferred_username": None}, "preferred_username"),
        ({"preferred_username": "a\nb"}, "preferred_username"),
        ({"preferred_username": "a" * 101}, "preferred_username"),
        ({"groups": ["others"]}, "none of the user's groups"),
        ({"groups": {"admins": 1}}, "none of the user's groups"),
        ({"groups": None}, "none of the user's groups"),
    ],
)
async def test_token_with_wrong_claims_is_refused(
    rig: RestRig, provider: Provider, claims: dict[str, Any], why: str
) -> None:
    provider.claims |= claims
    answer = await log_in(rig, provider)
    assert answer.status == 401
    assert why in answer.explain


async def test_provider_may_name_several_audiences(rig: RestRig, provider: Provider) -> None:
    provider.claims |= {"aud": ["account", CLIENT], "azp": CLIENT}
    assert (await log_in(rig, provider)).status == 200


async def test_groups_of_the_user_information_count(rig: RestRig, provider: Provider) -> None:
    configure(provider, rig, roles_claim="realm_access.roles")
    provider.claims = {}
    provider.of_user = {
        "sub": "subject-1", "preferred_username": "bob", "realm_access": {"roles": ["tenants"]},
    }  # fmt: skip
    answer = await log_in(rig, provider)
    assert (answer.json["user"], answer.json["limited"]) == ("openid:bob", True)
    provider.of_user["sub"] = "subject-2"
    assert "of another user" in (await log_in(rig, provider)).explain


@pytest.mark.requirement("A2")
async def test_session_has_the_present_rights_of_its_groups(
    rig: RestRig, provider: Provider
) -> None:
    answer = await log_in(rig, provider)
    browser = {"Cookie": cookie_of(answer)}

    async def shown() -> Any:
        return (await rig.ask("GET", "/2/session", user=None, headers=browser)).json

    configure(provider, rig, roles={"admins": "read"})
    assert (await shown())["rights"] == ["known", "read"]
    configure(provider, rig, roles={"*": "operator", "admins": "name=web*"})
    assert ((await shown())["limited"], "operate" in (await shown())["rights"]) == (True, True)
    for without in ({"others": "read"}, {"admins": "write,until=2020-12-31"}):
        configure(provider, rig, roles={"admins": "read"})
        answer = await log_in(rig, provider)
        browser = {"Cookie": cookie_of(answer)}
        assert await shown() is not None
        configure(provider, rig, roles=without)
        assert await shown() is None
    assert "none of the user's groups" in (await log_in(rig, provider)).explain  # they have ended


@pytest.mark.requirement("A1", "A4")
async def test_rest_takes_tokens_for_its_audience_only(rig: RestRig, provider: Provider) -> None:
    async def status(token: str) -> int:
        header = {"Authorization": f"Bearer {token}"}
        return (await rig.ask("GET", "/2/instances", user=None, headers=header)).status

    assert await status(provider.token(aud="api")) == 401  # no audience is configured
    configure(provider, rig, audience="api")
    assert await status(provider.token(aud="api")) == 200
    assert await status(provider.token(aud=["api", "x"])) == 200
    for wrong in ({"aud": CLIENT}, {"aud": "api", "exp": 1}, {"aud": "api", "iss": "https://x"}):
        assert await status(provider.token(**wrong)) == 401


async def test_new_key_of_the_provider_is_requested_but_not_by_every_guess(
    rig: RestRig, provider: Provider
) -> None:
    configure(provider, rig, audience="api")
    header = {"Authorization": f"Bearer {provider.token(aud='api')}"}
    assert (await rig.ask("GET", "/2/instances", user=None, headers=header)).status == 200
    provider.keys["RS256"] = RSAKey.generate_key(2048, {"kid": "next"})
    for _ in range(3):
        header = {"Authorization": f"Bearer {provider.token(aud='api')}"}
        assert (await rig.ask("GET", "/2/instances", user=None, headers=header)).status == 401
    assert provider.requests.count("/keys") == 1


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"issuer": "https://other.example.com"}, "says that it is the issuer"),
        ({"token_endpoint": "http://localhost/token"}, "begins with https://"),
        ({"jwks_uri": 1}, "is invalid"),
    ],
)
async def test_wrong_document_of_the_provider_is_refused(
    rig: RestRig, provider: Provider, document: dict[str, Any], why: str
) -> None:
    provider.document = document
    answers = [
        await rig.ask("POST", "/2/session/openid", user=None, headers=HERE) for _ in range(3)
    ]
    assert {one.status for one in answers} == {502}
    assert why in answers[0].explain
    assert len(provider.requests) == 1  # it is not asked again at once


async def test_provider_with_another_certificate_is_refused(
    rig: RestRig, provider: Provider
) -> None:
    configure(provider, rig, ca_file="")
    answer = await rig.ask("POST", "/2/session/openid", user=None, headers=HERE)
    assert (answer.status, "does not answer" in answer.explain) == (502, True)
    configure(provider, rig, ca_file="/nonexistent")
    answer = await rig.ask("POST", "/2/session/openid", user=None, headers=HERE)
    assert "ca_file /nonexistent cannot be used" in answer.explain


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("roles: {}", "must not be empty"),
        ("roles: {a: writer}", "unknown option 'writer'"),
        ("roles: {a: write}\nclientid: x", "unknown field"),
        ("roles: {a: write}\naudience: ganeti", "must differ from client_id"),
        ("roles: [a", "not YAML"),
        ("roles: {a: 1}", "roles"),
    ],
)
def test_error_in_the_file_names_the_field(more: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        openid.parse_settings(VALID + more)


def test_provider_without_tls_is_refused() -> None:
    with pytest.raises(InputError, match="begins with https://"):
        openid.parse_settings(VALID.replace("https://id", "http://id") + "roles: {a: write}")


def test_invalid_file_keeps_the_last_settings(rig: RestRig, tmp_path: Path) -> None:
    path = tmp_path / "openid.yaml"
    path.write_text(VALID + "roles: {a: write}")
    one = rig.services.openid
    assert one.refresh()
    path.write_text(VALID + "roles: {a: no such role}")
    assert one.refresh()
    assert one.settings is not None
    assert one.settings.roles == {"a": "write"}
    path.unlink()
    assert one.refresh()
    assert one.settings is None
