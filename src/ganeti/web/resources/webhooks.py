"""Webhooks; the opcodes declare how they are changed."""

from ganeti.clients import fields
from ganeti.model.operation import Right
from ganeti.web.lists import Listed
from ganeti.web.operations import BULK, LOCK, PAGES, Operation

WEBHOOKS = Listed("QueryWebhooks", fields.WEBHOOK, "/2/webhooks", id_field="name")
_PERMISSION = "webhook_read"

OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/2/webhooks", "webhooks", "List all webhooks", Right.WRITE, WEBHOOKS.collection(),
              (BULK, LOCK, *PAGES), result="list", shows="webhook", permission=_PERMISSION),
    Operation("GET", "/2/webhooks/{webhook}", "webhooks_name", "Return one webhook, without its secret", Right.WRITE,
              WEBHOOKS.one(), (LOCK,), result="object", shows="webhook", permission=_PERMISSION),
)  # fmt: skip
