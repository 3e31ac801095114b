"""What requests of browsers are refused, and what browsers are not asked.

A browser adds its user's credentials to whatever a page of another site sends. So a request that changes something is
refused if another site has caused it, and a browser is never asked for Basic credentials, which it would keep.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from ganeti.web.refusals import forbidden

_SITE, _ORIGIN, _HOST, _ACCEPT = "Sec-Fetch-Site", "Origin", "Host", "Accept"
_OWN_SITES = ("same-origin", "none")
"""This server's own page, and what the user has typed or chosen."""


def check_origin(headers: Mapping[str, str]) -> None:
    """Refusal (403) if a page of another site has caused the request; programs send neither of the headers."""
    site, origin = headers.get(_SITE), headers.get(_ORIGIN)
    if site is not None and site not in _OWN_SITES:
        raise forbidden("a page of another site has sent this request")
    if site is None and origin is not None and urlsplit(origin).netloc != headers.get(_HOST):
        raise forbidden("a page of another site has sent this request")


def is_browser(headers: Mapping[str, str]) -> bool:
    """Whether a browser has sent the request, by a page's script or by its user."""
    return _SITE in headers or wants_page(headers)


def wants_page(headers: Mapping[str, str]) -> bool:
    """Whether the answer is to be shown to a person."""
    return "text/html" in headers.get(_ACCEPT, "")
