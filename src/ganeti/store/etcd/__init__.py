"""The state in etcd: a client, the back end, and the management of members."""
