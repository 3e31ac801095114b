"""Words and forms of NBD, the network block device.

Source: `doc/proto.md` of NBD: fixed newstyle negotiation, simple and structured replies, metadata contexts.
"""

import struct
from enum import IntEnum, IntFlag

GREETING = struct.Struct(">8s8sH")
GREETING_MAGIC, OPTION_MAGIC = b"NBDMAGIC", b"IHAVEOPT"
FIXED_NEWSTYLE, NO_ZEROES = 1, 2
"""Flags of the greeting; those of the client have the same values, in four bytes."""
OPTION, OPTION_REPLY = struct.Struct(">8sII"), struct.Struct(">QIII")
OPTION_REPLY_MAGIC = 0x3E889045565A9
REQUEST, CHUNK, SIMPLE = struct.Struct(">IHHQQI"), struct.Struct(">IHHQI"), struct.Struct(">IIQ")
REQUEST_MAGIC, CHUNK_MAGIC, SIMPLE_MAGIC = 0x25609513, 0x668E33EF, 0x67446698


class Option(IntEnum):
    """What a client asks before it reads."""

    EXPORT_NAME = 1
    ABORT = 2
    LIST = 3
    INFO = 6
    GO = 7
    STRUCTURED = 8
    SET_CONTEXT = 10


class Reply(IntEnum):
    """Answers to options; those from `ERROR` on are refusals."""

    ACK = 1
    SERVER = 2
    INFO = 3
    CONTEXT = 4
    ERROR = 1 << 31
    UNSUPPORTED = ERROR + 1
    INVALID = ERROR + 3
    UNKNOWN = ERROR + 6


class Info(IntEnum):
    """The parts of the answer to INFO and GO."""

    EXPORT = 0
    BLOCK_SIZE = 3


class Export(IntFlag):
    """What an export can do."""

    HAS_FLAGS = 1
    READ_ONLY = 1 << 1
    CAN_TRIM = 1 << 5
    MANY_CONNECTIONS = 1 << 8


class Command(IntEnum):
    """Requests for data."""

    READ = 0
    WRITE = 1
    DISCONNECT = 2
    TRIM = 4
    STATUS = 7


class ChunkKind(IntEnum):
    """Parts of a structured answer; those from `ERROR` on are errors."""

    DATA = 1
    HOLE = 2
    STATUS = 5
    ERROR = 1 << 15
    FAILED = ERROR + 1


CHUNK_DONE = 1
"""Flag of the last chunk."""
ONE_EXTENT = 1 << 3
"""Flag of a request for the status of a disk: answer about one part only."""
EPERM, EIO, EINVAL = 1, 5, 22
"""Errors of simple replies: Linux's numbers, on every system."""
