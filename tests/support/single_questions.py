"""What scripted monitors of QEMU share: they have no connection, so a conversation is nothing to them."""

import contextlib


class SingleQuestions:
    """A base for whatever answers in place of a monitor."""

    def conversation(self) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()
