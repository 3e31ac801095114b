"""Disks of foreign programs: providers of external storage."""
