"""Examine a host: read its facts, and judge whether it can run a cluster's instances."""
