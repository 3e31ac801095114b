"""Disks that programs of others keep: providers of external storage."""
