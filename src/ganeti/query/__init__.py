"""Answers to queries about the cluster."""
