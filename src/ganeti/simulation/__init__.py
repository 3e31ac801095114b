"""The real master in virtual time, against simulated nodes."""
