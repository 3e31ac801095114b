"""Looking at disks on all their nodes, and mending those that are mirrored."""
