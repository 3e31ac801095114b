"""Decide on which nodes instances run: arrays in, decisions out; no input or output."""
