"""Options that say what keeps the cluster's state."""

from ganeti.cli.command import option

STATE_OPTIONS = (
    option("--state", choices=("embedded", "etcd"),
           help="what keeps the state: the candidates' own store, where an administrator names a new"
           " master, or etcd, which elects one by itself"),
    option("--state-urls", metavar="URL,...",
           help="of an etcd that somebody else runs; without it each candidate runs a server"),
    option("--state-authority", metavar="FILE",
           help="certificates that sign those of such an etcd's servers, on every candidate"),
    option("--state-credentials", metavar="FILE",
           help="a user and a password for such an etcd, a line each, on every candidate"),
)  # fmt: skip
