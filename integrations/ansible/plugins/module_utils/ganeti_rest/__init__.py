"""A typed client of Ganeti's REST interface, with the standard library alone.

    client = Client("cluster.example.com", user="anna", password="secret", ca_file="rapi.pem")
    client.wait(client.instance_startup("web1.example.com"))

`operations.py` is generated from the server's OpenAPI document: a method for each operation.
"""

from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest.client import Client
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    JobFailed,
    JobTimeout,
    NotFound,
    OutcomeUnknown,
    Refused,
    RestError,
    ServerBusy,
    Unauthorized,
    Unreachable,
    Untrusted,
)
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest.events import Event
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest.jobs import JobUpdate

__all__ = [
    "Client",
    "Conflict",
    "Event",
    "Forbidden",
    "InvalidRequest",
    "JobFailed",
    "JobTimeout",
    "JobUpdate",
    "NotFound",
    "OutcomeUnknown",
    "Refused",
    "RestError",
    "ServerBusy",
    "Unauthorized",
    "Unreachable",
    "Untrusted",
]
