"""Bytes in, messages out; no input or output."""
