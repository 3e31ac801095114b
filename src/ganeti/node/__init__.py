"""The procedures of the node daemon."""
