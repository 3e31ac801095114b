"""`ganeti-watcher`: checks every five minutes that everything runs that should run, and repairs what it safely can."""
