"""Fields of webhooks; none has the secret."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ganeti.model.webhook import Webhook, WebhookState
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import UNAVAILABLE, Field, ValueKind
from ganeti.query.fields.field import field_table as table
from ganeti.query.fields.stored import stored_fields

_TEXT, _OTHER, _NUMBER = ValueKind.TEXT, ValueKind.OTHER, ValueKind.NUMBER
_BOOL, _TIME = ValueKind.BOOL, ValueKind.TIMESTAMP


@dataclass
class WebhookRow:
    """One webhook in its context."""

    context: QueryContext
    webhook: Webhook

    @cached_property
    def memory(self) -> WebhookState | None:
        """What the master remembers of it; None before its first event, and while it is paused."""
        states = self.context.snapshot.table(WebhookState).values()
        return next((one for one in states if one.webhook == self.webhook.uuid), None)

    def remembered(self, name: str) -> Any:
        """Return one value of the memory; none without one."""
        return getattr(self.memory, name, None) or UNAVAILABLE

    @property
    def state(self) -> str:
        """Return the state in one word."""
        if self.webhook.is_paused:
            return "paused"
        return "failing" if self.memory and self.memory.failing_since else "good"

    @property
    def group_names(self) -> list[str]:
        groups = self.context.snapshot.groups
        return sorted(groups[uuid].name for uuid in self.webhook.groups if uuid in groups)


_FIELDS: tuple[Field[WebhookRow], ...] = (
    Field("name", "Webhook", _TEXT, "Name of the webhook", lambda r: r.webhook.name),
    Field("url", "URL", _TEXT, "Address that receives the events", lambda r: r.webhook.url),
    Field("kinds", "Kinds", _OTHER, "Kinds of events that it sends; empty: all", lambda r: list(r.webhook.kinds)),
    Field("names", "Names", _OTHER, "Patterns of names of objects; only events about these", lambda r: list(r.webhook.names)),
    Field("object_tags", "ObjectTags", _OTHER, "Tags of objects; only events about these",
        lambda r: list(r.webhook.object_tags)),
    Field("groups", "Groups", _OTHER, "Node groups; only events about these, their nodes and instances",
        lambda r: r.group_names),
    Field("verify_tls", "VerifyTLS", _BOOL, "Whether it verifies the certificate of the address",
        lambda r: r.webhook.verify_tls),
    Field("authorities", "Authorities", _TEXT, "Certificates, as PEM, by which that of the address is verified; empty: those"
        " of the master's system", lambda r: r.webhook.authorities),
    Field("allow_local", "AllowLocal", _BOOL, "Whether the address may be a loopback or link-local one",
        lambda r: r.webhook.allow_local),
    Field("paused", "Paused", _BOOL, "Whether it sends nothing", lambda r: r.webhook.is_paused),
    Field("owner", "Owner", _TEXT, "Who has added it", lambda r: r.webhook.owner or UNAVAILABLE),
    Field("state", "State", _TEXT, "State: good, failing or paused", lambda r: r.state),
    Field("position", "Position", _TEXT, "Number of the last event that needs no delivery any more, as last stored",
        lambda r: r.remembered("position")),
    Field("last_success", "LastSuccess", _TIME, "Time of the last accepted request, as last stored",
        lambda r: r.remembered("last_success")),
    Field("failing_since", "FailingSince", _TIME, "Time of the first failed request since the last success",
        lambda r: r.remembered("failing_since")),
    Field("failures", "Failures", _NUMBER, "Failed requests since the last success",
        lambda r: r.memory.failures if r.memory else 0),
    Field("error", "Error", _TEXT, "Reason of the last failed request", lambda r: r.remembered("error")),
    Field("gaps", "Gaps", _NUMBER, "How often events were lost because the log no longer had them",
        lambda r: r.memory.gaps if r.memory else 0),
)  # fmt: skip

WEBHOOK_FIELDS = table(_FIELDS, stored_fields("webhook", lambda row: row.webhook))
