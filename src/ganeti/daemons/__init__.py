"""The programs, put together."""
