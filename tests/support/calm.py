"""Whether a cluster has come to rest."""

import json

from tests.support.local_cluster import LocalCluster, wait_until


def wait_calm(cluster: LocalCluster, limit_s: float) -> None:
    """Return once no job runs, every node answers, and the instances are protected."""
    wait_until(lambda: not _restless(cluster), "the cluster is calm", limit_s)


def unended_jobs(cluster: LocalCluster) -> set[str]:
    """Return the states of jobs that have not ended."""
    with cluster.luxi() as client:
        rows = client.query("job", ["status"])["data"]
    return {row[0][1] for row in rows} & {"queued", "waiting", "running"}


def _restless(cluster: LocalCluster) -> set[str]:
    # It fails while something needs an administrator.
    status = json.loads(cluster.run("gnt-cluster", "ha-status", "--json").out)
    states = {one["state"] for one in (*status["nodes"], *status["instances"])}
    why = {one["why"] for one in status["instances"]} - {""}
    offline = cluster.ok("gnt-node", "list", "--no-headers", "-o", "offline").out.split()
    restless = (states - {"healthy", "protected"}) | (set(offline) - {"N"}) | why
    return restless | unended_jobs(cluster)
