"""Small clusters in plain lists: there arrays cost more than they save, and numpy takes longer to load than a search takes.

The rules, scores and answers are those of `allocate` and `redundancy`.
"""
