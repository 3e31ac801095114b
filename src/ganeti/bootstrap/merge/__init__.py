"""`ganeti-cluster-merge`: merges one or more clusters into the cluster on whose master it runs (S33-S49).

`steps` has the steps, each with its undo; `journal` records durably which are done; `agent` is the
part of a node; `remote` reaches nodes of other clusters; `states` opens configurations offline.
"""
