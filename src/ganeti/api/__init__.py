"""Servers of the cluster's interfaces."""
