"""The watcher's memory between its runs: a text in the cluster's state, so that the next master has it."""

import msgspec

from ganeti.watcher.facts import Memory


def read_memory(text: str) -> Memory:
    """Return the last memory; an empty one if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode(text.encode(), type=Memory)
    except (msgspec.DecodeError, UnicodeError):
        return Memory()


def memory_text(memory: Memory) -> str:
    """Return the text for `read_memory`; equal memories give equal texts."""
    return msgspec.json.Encoder(order="deterministic").encode(memory).decode()
