"""The objects of a cluster, and the requests about them."""
