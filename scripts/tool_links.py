"""Links where Ganeti's tools are looked for: tool_links.py DIRECTORY-OF-PROGRAMS [ROOT]."""

import sys
from pathlib import Path

PLACE = "usr/lib/ganeti"
TOOLS = {
    "check-cert-expired": "check-cert-expired",
    "ensure-dirs": "ensure-dirs",
    "mon-collector": "mon-collector",
    "tools/burnin": "burnin",
    "tools/cfgupgrade": "cfgupgrade",
    "tools/cluster-merge": "ganeti-cluster-merge",
    "tools/confd-client": "ganeti-confd-client",
    "tools/fmtjson": "fmtjson",
    "tools/lvmstrap": "lvmstrap",
    "tools/master-ip-setup": "master-ip-setup",
    "tools/move-instance": "move-instance",
    "tools/node-cleanup": "node-cleanup",
    "tools/ovfconverter": "ovfconverter",
    "tools/query-config": "query-config",
    "tools/sanitize-config": "sanitize-config",
    "tools/users-setup": "ganeti-users-setup",
}
"""Below PLACE: the program, by its name here."""


def link(programs: str, root: Path) -> None:
    """Make the links below `root`; what is there already is replaced."""
    for name, program in TOOLS.items():
        path = root / PLACE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(f"{programs}/{program}")


if __name__ == "__main__":
    link(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 and sys.argv[2] else "/"))  # noqa: PLR2004
