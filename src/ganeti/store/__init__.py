"""The stored state: durable, ordered transactions, the node's register, and the archive of jobs."""
