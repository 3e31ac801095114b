"""Tests of external storage."""
