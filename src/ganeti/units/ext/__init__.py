"""External storage."""
