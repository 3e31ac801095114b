"""A trap for the node daemon of a machine: it dies, or is held up, where it runs a program of LVM or DRBD."""

import time

from ganeti.base.paths import NODED_PORT
from tests.support.machine_cluster import MachineCluster

PROGRAMS = ("lvm", "drbdsetup", "drbdmeta")
LIMIT_S = 900
_WRAPPER = r"""#!/run/bin/sh
PATH=$PATH:/run/bin
name=${0##*/}
real=/run/real/$name first=
case $name in lv*|vg*|pv*) real=/run/real/lvm first=$name ;; esac
words=$(cat /run/trap/words 2>/dev/null)
caught=
case "$name $*" in
*"$words"*) [ -z "$words" ] || { mv /run/trap/words /run/trap/caught && caught=$(cat /run/trap/what); } ;;
esac
[ "$caught" = hold ] && sleep 20
$real $first "$@"
status=$?
[ "$caught" = kill ] && kill -9 $PPID
exit $status
"""
_LAY = """
mkdir -p /run/real /run/trap
for name in {programs}; do
  [ -e /run/real/$name ] && continue
  place=$(readlink -f "$(command -v $name)")
  cp "$place" /run/real/$name
  cp /run/trap/wrapper /run/trap/$name && chmod 755 /run/trap/$name
  mount -o bind /run/trap/$name "$place"
done
"""
_SERVE = ". /src/environment; . /run/node-environment; ganeti-noded >/var/log/noded.said 2>&1 </dev/null &"


class Trap:
    """One trap in one machine; it may be set again and again."""

    def __init__(self, cluster: MachineCluster, node: int) -> None:
        self._cluster, self._node = cluster, node
        script = _WRAPPER.replace("'", "'\\''")
        self._inside(f"mkdir -p /run/trap && printf %s '{script}' >/run/trap/wrapper")
        self._inside(_LAY.format(programs=" ".join(PROGRAMS)))

    def _inside(self, script: str) -> str:
        return self._cluster.inside(self._node, script)

    def set(self, words: str, what: str) -> None:
        """When a program runs with `words` in its line: `kill` the daemon after it, or `hold` it before."""
        self._inside(f"rm -f /run/trap/caught; echo {what} >/run/trap/what")
        self._inside(f"echo '{words}' >/run/trap/words")

    def wait(self) -> None:
        """Wait until something was caught."""
        end = time.monotonic() + LIMIT_S
        while self._cluster.machine(self._node).agent.call("test -e /run/trap/caught")[0]:
            assert time.monotonic() < end, "the trap caught nothing"
            time.sleep(1)

    def serve_again(self) -> None:
        """Start the node daemon that was killed."""
        listens = f"grep -q ':{NODED_PORT:04X} 00000000:0000 0A' /proc/net/tcp"
        agent = self._cluster.machine(self._node).agent
        end = time.monotonic() + LIMIT_S
        while agent.call(listens)[0] == 0:
            assert time.monotonic() < end, "the node daemon lives on"
            time.sleep(1)
        self._inside(_SERVE)
        self._cluster.wait_serving(self._node)
