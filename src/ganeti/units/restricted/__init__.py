"""Units about restricted commands."""
