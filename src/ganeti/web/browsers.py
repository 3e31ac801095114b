"""Protection against requests that other sites cause in a user's browser.

A browser adds its user's credentials to requests of pages of other sites. So a request for a change is refused if
another site has caused it. A browser is never asked for Basic credentials, because it would keep them.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from ganeti.web.refusals import forbidden

_SITE, _ORIGIN, _HOST, _ACCEPT = "Sec-Fetch-Site", "Origin", "Host", "Accept"
_OWN_SITES = ("same-origin", "none")
"""Requests of this server's own page, and of the user's address bar and bookmarks."""


def check_origin(headers: Mapping[str, str]) -> None:
    """Raise Refusal (403) if a page of another site has caused the request; programs send neither of the headers."""
    site, origin = headers.get(_SITE), headers.get(_ORIGIN)
    if site is not None and site not in _OWN_SITES:
        raise forbidden("a page of another site has sent this request")
    if site is None and origin is not None and urlsplit(origin).netloc != headers.get(_HOST):
        raise forbidden("a page of another site has sent this request")


def check_same_origin(headers: Mapping[str, str]) -> None:
    """Raise Refusal (403) unless a page of this server has caused the request; browsers send `Origin` for sockets."""
    check_origin(headers)
    if urlsplit(headers.get(_ORIGIN, "")).netloc != headers.get(_HOST):
        raise forbidden("a page of another site has sent this request")


def is_browser(headers: Mapping[str, str]) -> bool:
    """Return True if a browser has sent the request, for a script of a page or for its user."""
    return _SITE in headers or wants_page(headers)


def wants_page(headers: Mapping[str, str]) -> bool:
    """Return True if the browser shows the answer to its user."""
    return "text/html" in headers.get(_ACCEPT, "")
