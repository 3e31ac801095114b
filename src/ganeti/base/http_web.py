"""The server's side of aiohttp, which clients do not import: 2 MiB."""

from ganeti.base.http import nothing_is_read

with nothing_is_read():
    from aiohttp import WSMsgType, web
    from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

__all__ = [
    "HttpProcessingError",
    "LineTooLong",
    "RequestHandler",
    "StreamReader",
    "WSMsgType",
    "web",
]
