"""The state of disks on all their nodes, and the repair of mirrored disks."""
