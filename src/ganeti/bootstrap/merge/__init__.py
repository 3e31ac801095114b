"""`ganeti-cluster-merge`: one or more clusters become part of the one on whose master it runs (S33-S49).

`steps` is what is done, each with its way back; `journal` what of it was done, durably; `agent` what a node
does for it; `remote` how nodes of other clusters are reached; `states` the configurations, opened offline.
"""
