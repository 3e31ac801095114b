"""The job queue: durable and ordered, with subscriptions to changes."""
