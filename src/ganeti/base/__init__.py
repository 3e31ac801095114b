"""Ground: errors, files, processes, certificates, clock. Knows nothing about clusters."""
