"""What a node can tell about itself: data collectors, read-only."""
