"""The history of a node's figures: one small file of fixed size for each guest, and one for the node."""
