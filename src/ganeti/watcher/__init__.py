"""`ganeti-watcher`: every five minutes it looks whether all that should run does, and mends what it may."""
