"""The same search in plain lists, for small clusters: there numpy takes longer to load than a search takes.

The rules, scores and answers are those of `allocate` and `redundancy`.
"""
