"""Exports of instances, and moves to other clusters."""
