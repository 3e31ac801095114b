"""Merge the configurations of other clusters into the local one, offline (S40, S41, S49).

    plan = merge(ours, [theirs, ...], MergeOptions(...))
    plan.snapshot    # our configuration with all that they had
    plan.findings    # what stops it, what was decided, what is good to know

It is pure: `Snapshot`s in, a `MergePlan` out. `docs/design/merge.md` has the rules;
`ganeti.bootstrap.merge` does the rest of a merge of running clusters.
"""
