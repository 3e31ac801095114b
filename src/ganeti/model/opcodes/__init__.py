"""Opcodes: all requests to the master, as data.

`ganeti.model.opcode_table` lists all opcodes. A command imports only the module of its own opcode.
"""

from ganeti.model.opcodes.base import OpCode

__all__ = ["OpCode"]
