"""`ganeti-watcher`.

Checks every five minutes that all required instances and daemons run, and repairs problems.
"""
