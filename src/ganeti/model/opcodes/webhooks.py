"""Opcodes about webhooks; the master sends their requests (`ganeti.daemons.webhooks`)."""

from typing import Annotated, ClassVar

from ganeti.model.fields import Field, Form, RefersTo
from ganeti.model.names import EVENT_KINDS
from ganeti.model.opcodes.base import OpCode
from ganeti.model.operation import DRY_RUN, Rest

_PATH = "/2/webhooks"
_ONE = f"{_PATH}/{{webhook}}"


class OnWebhook(OpCode, frozen=True, kw_only=True):
    """Fields of every opcode about one webhook."""

    webhook_name: Annotated[str, RefersTo.CLUSTER]

    summary_field: ClassVar[str | None] = "webhook_name"


class WebhookParams(OnWebhook, frozen=True, kw_only=True):
    """Parameters of a webhook; None keeps the present value, or the default of a new webhook."""

    url: Annotated[str | None, Field(
        "address that receives the events: https://HOST/PATH, or http:// without encryption", metavar="URL"
    ), RefersTo.CLUSTER] = None  # fmt: skip
    kinds: Annotated[list[str] | None, Field(
        f"send only events of these kinds: {', '.join(EVENT_KINDS)}; default: all",
        metavar="KIND,...", form=Form.WORDS
    ), RefersTo.NOTHING] = None  # fmt: skip
    names: Annotated[list[str] | None, Field(
        "send only events about objects of these names, for example 'web*,db1.example.com'", metavar="PATTERN,...",
        form=Form.WORDS
    ), RefersTo.NOTHING] = None  # fmt: skip
    object_tags: Annotated[list[str] | None, Field(
        "send only events about objects with one of these tags", metavar="TAG,...", form=Form.WORDS
    ), RefersTo.NOTHING] = None  # fmt: skip
    groups: Annotated[list[str] | None, Field(
        "send only events about these node groups, their nodes, and the instances of these nodes", metavar="GROUP,...",
        form=Form.WORDS
    ), RefersTo.GROUP] = None  # fmt: skip
    verify_tls: Annotated[bool | None, Field(
        "verify the certificate of the receiver; default: yes", metavar="yes|no", form=Form.YES_NO
    )] = None  # fmt: skip
    authorities: Annotated[str | None, RefersTo.NOTHING] = None
    """PEM of the certificates by which the receiver's is verified; empty: those of the master's system."""
    allow_local: Annotated[bool | None, Field(
        "allow an address on a loopback interface or a link-local one; default: no", metavar="yes|no",
        form=Form.YES_NO
    )] = None  # fmt: skip
    secret: Annotated[str | None, RefersTo.NOTHING] = None
    """The key of the signatures."""
    is_paused: bool | None = None

    secret_fields: ClassVar[tuple[str, ...]] = ("secret",)


class OpWebhookAdd(WebhookParams, frozen=True, kw_only=True, tag="OP_WEBHOOK_ADD"):
    """Create a webhook, which sends events to an address. It needs an address and a secret."""

    no_loss: ClassVar[str] = "adds an entry to the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("POST", _PATH, (DRY_RUN,), summary="Create a webhook", renamed={"name": "webhook_name"}),
    )  # fmt: skip


class OpWebhookSetParams(WebhookParams, frozen=True, kw_only=True, tag="OP_WEBHOOK_SET_PARAMS"):
    """Change a webhook, or pause or resume it."""

    no_loss: ClassVar[str] = "changes an entry of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", _ONE, (DRY_RUN,), summary="Change, pause or resume a webhook"),
    )


class OpWebhookRemove(OnWebhook, frozen=True, kw_only=True, tag="OP_WEBHOOK_REMOVE"):
    """Remove a webhook. Events that it has not sent are not sent any more."""

    no_loss: ClassVar[str] = "removes an entry of the configuration"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("DELETE", _ONE, (DRY_RUN,), summary="Remove a webhook", has_body=False),
    )


class OpWebhookTest(OnWebhook, frozen=True, kw_only=True, tag="OP_WEBHOOK_TEST"):
    """Send an event of the kind test to a webhook's address now, and show the answer."""

    no_loss: ClassVar[str] = "sends a request"
    rest: ClassVar[tuple[Rest, ...]] = (
        Rest("PUT", f"{_ONE}/test", (DRY_RUN,), summary="Send a test event to a webhook", has_body=False),
    )  # fmt: skip
