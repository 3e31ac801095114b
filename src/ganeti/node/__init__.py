"""What runs on a node: the node daemon's procedures."""
