"""Checks of credentials: the users file, with delays for guesses."""

from ganeti.base.clock import Clock
from ganeti.base.errors import InputError
from ganeti.web.delays import LoginDelays
from ganeti.web.refusals import bad_request
from ganeti.web.users import User, Users, day_of, name_in


class Logins:
    """The only place where a password, token or secret of a link is compared."""

    def __init__(self, users: Users, clock: Clock) -> None:
        self._users = users
        self._clock = clock
        self._delays = LoginDelays(clock.monotonic)

    async def check(self, header: str, address: str) -> User | None:
        """Return the user that an `Authorization` header proves, None after a delay; Refusal (400, 429)."""
        today = day_of(self._clock.time())

        def compare() -> User | None:
            user = self._users.login(header, today)
            if user is None and self._users.refresh():  # A user who was just added need not wait.
                user = self._users.login(header, today)
            return user

        try:
            return await self._delays.login(address, name_in(header), header, compare)
        except InputError as err:
            raise bad_request(err.message) from err

    async def of_link(self, found: User | None, secret: str, address: str) -> User | None:
        """Return the user of a login link, None after a delay; Refusal (429)."""
        return await self._delays.login(address, None, f"link {secret}", lambda: found)

    def of_name(self, name: str) -> User | None:
        """Return the user of this name."""
        self._users.refresh()
        return self._users.of_name(name, self._clock.time())
