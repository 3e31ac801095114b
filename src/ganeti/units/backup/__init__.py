"""Exports of instances, and their way to other clusters."""
