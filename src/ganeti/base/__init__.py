"""The foundation: errors, files, processes, certificates, clock. It has no knowledge of clusters."""
