"""Where instances go: arrays in, decisions out; no input or output."""
