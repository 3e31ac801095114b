"""The job queue: durable, ordered, watched."""
