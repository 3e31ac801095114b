"""Answers to questions about the cluster."""
