"""What moves that nobody finished leave on a node."""

import shutil

from ganeti.base import certificates
from ganeti.base.paths import Paths


def forget_old_keys(paths: Paths, now: float) -> list[str]:
    """Remove the keys of transfers whose certificates have expired; what was done, to be told (S219).

    A move's first step makes one on the instance's node; if the step that uses it never comes, no job does this.
    The instance at the destination is a matter of that cluster's job, which waits so long and not longer.
    """
    done = []
    try:
        found = sorted(paths.transfer_keys.iterdir())
    except FileNotFoundError:
        return []
    for key in found:
        if not key.is_symlink() and now - key.stat().st_mtime > certificates.DAY_S:
            shutil.rmtree(key, ignore_errors=True)
            done.append(f"removed {key.name}, the key of a transfer that was never finished")
    return done
