"""Checks of credentials: the users file and the OpenID provider, with delays for guesses."""

from http import HTTPStatus

from ganeti.base.clock import Clock
from ganeti.base.errors import InputError
from ganeti.model.rest_users import Entry, User
from ganeti.web.delays import LoginDelays
from ganeti.web.openid_provider import OpenId
from ganeti.web.refusals import Refusal, bad_request
from ganeti.web.users import Users, day_of, name_in, token_in


class Logins:
    """The only place where a password, token, code or secret of a link is compared."""

    def __init__(self, users: Users, openid: OpenId, clock: Clock) -> None:
        self._users = users
        self._openid = openid
        self._clock = clock
        self._delays = LoginDelays(clock.monotonic)

    async def check(self, header: str, address: str) -> User | None:
        """Return the user that an `Authorization` header proves, None after a delay; Refusal (400, 429)."""
        today = day_of(self._clock.time())

        async def compare() -> User | None:
            user = self._users.login(header, today)
            if user is None and self._users.refresh():  # A user who was just added need not wait.
                user = self._users.login(header, today)
            if user is None and (token := token_in(header)):
                user = await self._openid.of_token(token)
            return user

        try:
            return await self._delays.login(address, name_in(header), header, compare)
        except InputError as err:
            raise bad_request(err.message) from err

    async def of_code(
        self, code: str, state: str, secret: str, address: str
    ) -> tuple[User, list[str]]:
        """Return the user whom an OpenID provider has logged in, and the user's groups; Refusal (401, 404, 429, 502)."""
        why = ""

        async def exchange() -> tuple[User, list[str]] | None:
            nonlocal why
            try:
                return await self._openid.finish(code, state, secret)
            except InputError as err:
                why = err.message
                return None

        found = await self._delays.login(address, None, f"code {code}", exchange)
        if found is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, why)
        return found

    async def of_link(self, found: User | None, secret: str, address: str) -> User | None:
        """Return the user of a login link, None after a delay; Refusal (429)."""

        async def redeemed() -> User | None:
            return found

        return await self._delays.login(address, None, f"link {secret}", redeemed)

    def entries(self) -> list[Entry]:
        """Return the users of the users file."""
        self._users.refresh()
        return self._users.entries

    def of_name(self, name: str) -> User | None:
        """Return the user of this name."""
        self._users.refresh()
        return self._users.of_name(name, self._clock.time())
