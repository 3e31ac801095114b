"""Opcodes: everything that can be asked of the master, as data.

`ganeti.model.opcode_table` has all of them. A command imports only the module of its own opcode.
"""

from ganeti.model.opcodes.base import OpCode

__all__ = ["OpCode"]
