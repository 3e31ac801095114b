"""Logical units about webhooks."""
