"""Clients of the cluster's interfaces."""
