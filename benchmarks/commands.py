"""How long a whole command takes, and the processor time that it uses."""

import resource
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Cost(NamedTuple):
    """Of one run of a command, from its start to its end."""

    ms: float
    cpu_us: int
    """Processor time, the kernel's for it included: a busy machine changes it less."""

    def figures(self, name: str) -> dict[str, float]:
        """Return the figures of a benchmark."""
        return {f"{name}_ms": self.ms, f"{name}_cpu_us": self.cpu_us}


def cost_of(argv: Sequence[str], environment: Mapping[str, str], runs: int) -> Cost:
    """Run a command once, and then so often; return the medians."""
    # What is installed is compiled.
    own = {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
    taken = [_once(argv, own) for _ in range(runs + 1)][1:]
    return Cost(
        round(statistics.median(one.ms for one in taken), 1),
        round(statistics.median(one.cpu_us for one in taken)),
    )


def _once(argv: Sequence[str], environment: Mapping[str, str]) -> Cost:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
    ms, after = (time.perf_counter() - begun) * 1000, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Cost(ms, round(used * 1e6))
