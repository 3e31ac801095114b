"""What the watcher keeps between its runs: a text in the cluster's state, so that the next master has it."""

import msgspec

from ganeti.watcher.facts import Memory


def read_memory(text: str) -> Memory:
    """What was kept last; nothing if there is none, or none that can be read."""
    try:
        return msgspec.json.decode(text.encode(), type=Memory)
    except (msgspec.DecodeError, UnicodeError):
        return Memory()


def memory_text(memory: Memory) -> str:
    """What `read_memory` reads; the same for the same memory."""
    return msgspec.json.Encoder(order="deterministic").encode(memory).decode()
