"""OS definitions and their scripts."""
