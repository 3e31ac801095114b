"""Storage drivers."""
