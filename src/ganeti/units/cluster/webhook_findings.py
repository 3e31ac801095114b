"""Findings about webhooks; pure."""

from collections.abc import Iterator

from ganeti.config.snapshot import Snapshot
from ganeti.model.webhook import Webhook, WebhookState
from ganeti.units.cluster.findings import Finding

FAILING_S = 3600.0
"""The time without a success after which a webhook is reported."""


def webhook_findings(snapshot: Snapshot, now: float) -> Iterator[Finding]:
    """Yield webhooks whose receivers have accepted nothing for an hour."""
    rules = snapshot.table(Webhook)
    for state in snapshot.table(WebhookState).values():
        rule = rules.get(state.webhook)
        if rule is None or rule.is_paused:
            continue
        if state.failing_since and now - state.failing_since >= FAILING_S:
            minutes = int((now - state.failing_since) / 60)
            text = (
                f"webhook {rule.name} has failed for {minutes} minutes: {state.error}; correct that, then run:"
                f" gnt-cluster webhook test {rule.name}"
            )
            yield Finding("ECLUSTERWEBHOOK", "cluster", snapshot.cluster.name, text, is_error=False)
