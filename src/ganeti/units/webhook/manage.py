"""Webhooks: created, changed, removed and tested."""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, ExecError, InputError, PrereqError
from ganeti.base.identifiers import plain_name
from ganeti.base.tls import check_authorities
from ganeti.config.resolve import resolve_group, resolve_webhook
from ganeti.config.transaction import Draft
from ganeti.config.view import View
from ganeti.jobs.executor import Change, Outcome
from ganeti.model.names import EVENT_KINDS
from ganeti.model.objects import GroupUuid
from ganeti.model.opcodes.webhooks import (
    OpWebhookAdd,
    OpWebhookRemove,
    OpWebhookSetParams,
    OpWebhookTest,
    WebhookParams,
)
from ganeti.model.webhook import Webhook, WebhookState
from ganeti.protocols.webhook import Happened, check_secret, check_url
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.instance.requests import check_tags
from ganeti.units.job_source import check_is_local
from ganeti.units.services import WebhookPost

WEBHOOKS_LIMIT = 20
"""Each rule reads the log of events by itself."""
PATTERNS_LIMIT = 100
PATTERN_LENGTH = 255
TEST = "test"
"""The kind of the event that `OpWebhookTest` sends."""


def _check_params(op: WebhookParams) -> None:
    """Refuse values that are wrong in every cluster; InputError."""
    texts = (
        (op.url, check_url),
        (op.secret, check_secret),
        (op.authorities or None, check_authorities),
    )
    for text, check in texts:
        if text is not None:
            check(text)
    for kind in op.kinds or ():
        if kind not in EVENT_KINDS:
            raise InputError(
                f"{kind!r:.40} is not a kind of event; the kinds are {', '.join(EVENT_KINDS)}",
                "kinds",
            )
    for name in ("names", "object_tags", "groups"):
        if len(getattr(op, name) or ()) > PATTERNS_LIMIT:
            raise InputError(f"must have at most {PATTERNS_LIMIT} entries", name)
    for pattern in op.names or ():
        if not pattern or len(pattern) > PATTERN_LENGTH or not pattern.isprintable():
            raise InputError(f"{pattern!r:.60} is not a pattern of names, such as 'web*'", "names")
    for tag in op.object_tags or ():
        check_tags([tag])


def _requested(view: View, op: WebhookParams) -> dict[str, Any]:
    """Return the new values of a webhook's fields; PrereqError for a group that does not exist."""
    plain = ("url", "secret", "verify_tls", "authorities", "allow_local", "is_paused")
    given = {name: value for name in plain if (value := getattr(op, name)) is not None}
    for name in ("kinds", "names", "object_tags"):
        if (words := getattr(op, name)) is not None:
            given[name] = tuple(sorted(set(words)))
    if op.groups is not None:
        given["groups"] = tuple(GroupUuid(resolve_group(view, one).uuid) for one in op.groups)
    return given


def _check_source(ctx: UnitContext, op: WebhookParams, old: Webhook | None) -> None:
    """Let only the master's administrators reach local services; PrereqError."""
    if op.allow_local:
        check_is_local(ctx, "allow_local")
    if old is not None and old.allow_local and op.url is not None:
        check_is_local(ctx, "the address of a webhook with allow_local")


@dataclass(frozen=True)
class WebhookPlan:
    """The change of the configuration."""

    change: Change


class LUWebhookAdd(LogicalUnit[OpWebhookAdd, WebhookPlan]):
    """Create a webhook."""

    def check_arguments(self) -> None:
        plain_name(self.op.webhook_name, "webhook_name")
        if self.op.url is None:
            raise InputError("name the address: --url=https://HOST/PATH", "url")
        if self.op.secret is None:
            raise InputError("a webhook needs a secret for its signatures", "secret")
        _check_params(self.op)

    async def check_prereq(self, ctx: UnitContext) -> WebhookPlan:
        _check_source(ctx, self.op, None)
        webhook = Webhook(
            uuid=ctx.ids.uuid(),
            name=self.op.webhook_name,
            owner=ctx.run.source,
            **_requested(ctx.snapshot, self.op),
        )

        def change(draft: Draft) -> None:
            if len(draft.table(Webhook)) >= WEBHOOKS_LIMIT:
                raise PrereqError(
                    f"the limit of {WEBHOOKS_LIMIT} webhooks is reached; remove one:"
                    " gnt-cluster webhook remove NAME",
                    ErrorCode.NO_RESOURCES,
                )
            draft.put(webhook)

        ctx.check_change(change)
        return WebhookPlan(change)

    async def execute(self, ctx: UnitContext, plan: WebhookPlan) -> Outcome:
        return Outcome(change=plan.change)


class LUWebhookSetParams(LogicalUnit[OpWebhookSetParams, WebhookPlan]):
    """Change a webhook."""

    def check_arguments(self) -> None:
        _check_params(self.op)

    async def check_prereq(self, ctx: UnitContext) -> WebhookPlan:
        old = resolve_webhook(ctx.snapshot, self.op.webhook_name)
        _check_source(ctx, self.op, old)
        given = _requested(ctx.snapshot, self.op)
        if not given:
            raise InputError("nothing to change: pass at least one option", "options")

        def change(draft: Draft) -> None:
            draft.put(replace(draft.table(Webhook)[old.uuid], **given))

        ctx.check_change(change)
        return WebhookPlan(change)

    async def execute(self, ctx: UnitContext, plan: WebhookPlan) -> Outcome:
        return Outcome(change=plan.change)


class LUWebhookRemove(LogicalUnit[OpWebhookRemove, WebhookPlan]):
    """Remove a webhook; the master forgets what it remembers of it."""

    async def check_prereq(self, ctx: UnitContext) -> WebhookPlan:
        old = resolve_webhook(ctx.snapshot, self.op.webhook_name)

        def change(draft: Draft) -> None:
            draft.remove(draft.table(Webhook)[old.uuid])
            for state in list(draft.table(WebhookState).values()):
                if state.webhook == old.uuid:
                    draft.remove(state)

        ctx.check_change(change)
        return WebhookPlan(change)

    async def execute(self, ctx: UnitContext, plan: WebhookPlan) -> Outcome:
        return Outcome(change=plan.change)


@dataclass(frozen=True)
class TestPlan:
    """The webhook, and the part of the master that sends its requests."""

    webhook: Webhook
    post: WebhookPost


class LUWebhookTest(LogicalUnit[OpWebhookTest, TestPlan]):
    """Send one event, apart from the others."""

    async def check_prereq(self, ctx: UnitContext) -> TestPlan:
        webhook = resolve_webhook(ctx.snapshot, self.op.webhook_name)
        if (post := ctx.services.webhook_post) is None:
            raise PrereqError("this master sends no webhooks", ErrorCode.WRONG_STATE)
        return TestPlan(webhook, post)

    async def execute(self, ctx: UnitContext, plan: TestPlan) -> Outcome:
        webhook = plan.webhook
        ctx.step(f"sending a test event to {webhook.name}")
        content = {"text": f"a test of webhook {webhook.name}"}
        delivery = f"{webhook.uuid}.{TEST}.{ctx.ids.uuid()}"
        cluster = ctx.snapshot.cluster.name
        result = await plan.post(cluster, webhook, delivery, [Happened("0-0", TEST, content)])
        if result.error:
            raise ExecError(f"webhook {webhook.name}: {result.error}")
        return Outcome({"status": result.status, "seconds": round(result.seconds, 3)})
