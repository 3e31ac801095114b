"""Automatic recovery of instances whose node is lost (D1-D13): pure decisions, no clock, no input or output."""
