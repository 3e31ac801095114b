"""Programs that administrators and timers run on one node, beside the commands of the cluster."""
