"""Webhooks, and the memory of the master for them."""

from collections.abc import Iterator

from ganeti.base.errors import ErrorCode, InputError
from ganeti.base.identifiers import plain_name
from ganeti.base.tls import check_authorities
from ganeti.config.index import Claim
from ganeti.config.kinds.kind import Kind, Problem, name_problems
from ganeti.config.view import View
from ganeti.model.names import EVENT_KINDS
from ganeti.model.objects import Cluster
from ganeti.model.webhook import Webhook, WebhookState
from ganeti.protocols.webhook import check_secret, check_url


def _claims(_cluster: Cluster, webhook: Webhook) -> Iterator[Claim]:
    yield Claim("webhook name", webhook.name)


def _problems(view: View, webhook: Webhook) -> Iterator[Problem]:
    where = f"webhook {webhook.name}"
    yield from name_problems(plain_name, webhook.name, "webhook name")
    for check, value in ((check_url, webhook.url), (check_secret, webhook.secret)):
        try:
            check(value)
        except InputError as err:
            yield ErrorCode.WRONG_INPUT, f"{where}: {err.message}"
    if webhook.authorities:
        try:
            check_authorities(webhook.authorities)
        except InputError as err:
            yield ErrorCode.WRONG_INPUT, f"{where}: {err.message}"
    for kind in webhook.kinds:
        if kind not in EVENT_KINDS:
            yield ErrorCode.WRONG_INPUT, f"{where}: {kind} is not a kind of event"
    for group in webhook.groups:
        if group not in view.groups:
            yield ErrorCode.UNKNOWN_ENTITY, f"{where}: its group {group} does not exist"


WEBHOOK = Kind("webhook", Webhook, _claims, _problems)
WEBHOOK_STATE = Kind("webhook-state", WebhookState)
