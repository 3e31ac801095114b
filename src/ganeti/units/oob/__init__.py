"""Units about out-of-band management."""
