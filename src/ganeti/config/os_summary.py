"""What the nodes say about OS definitions, put together: pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ganeti.config.os_states import base_name
from ganeti.model.objects import Cluster
from ganeti.rpc.procedures.programs import OsInfo


@dataclass
class OsSummary:
    """One OS definition across nodes."""

    name: str
    by_node: dict[str, OsInfo] = field(default_factory=dict)
    """Node name -> what it has."""

    def is_valid(self, nodes: set[str]) -> bool:
        """Usable, and the same, on all of `nodes`."""
        infos = list(self.by_node.values())
        agree = (
            len({(info.version, tuple(info.variants), tuple(info.api_versions)) for info in infos})
            == 1
        )
        return set(self.by_node) == nodes and agree and not any(info.problem for info in infos)

    def variants(self) -> list[str]:
        """The variants that every node has."""
        sets = [set(info.variants) for info in self.by_node.values()]
        return sorted(set.intersection(*sets)) if sets else []

    def values(self, cluster: Cluster, nodes: set[str]) -> dict[str, Any]:
        """All fields."""
        first = next(iter(self.by_node.values()))
        return {
            "name": self.name,
            "valid": self.is_valid(nodes),
            "variants": self.variants(),
            "parameters": first.parameters,
            "api_versions": first.api_versions,
            "os_version": first.version,
            "hidden": self.name in cluster.hidden_os,
            "blacklisted": self.name in cluster.blacklisted_os,
            "os_hvp": _of_os(cluster.os_hvp, self.name),
            "osparams": _of_os(cluster.osparams, self.name),
            "trusted": True,
            "node_status": {
                name: [
                    [
                        info.path,
                        not info.problem,
                        info.problem,
                        info.variants,
                        info.parameters,
                        info.api_versions,
                        True,
                    ]
                ]
                for name, info in self.by_node.items()
            },
        }


def _of_os(by_os: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The cluster's parameters for an OS, with those for its variants: NAME and NAME+VARIANT -> parameters."""
    return {os: params for os, params in by_os.items() if base_name(os) == name}


def summarize(answers: dict[str, list[OsInfo]]) -> list[OsSummary]:
    """Node name -> its definitions, as one summary for each OS, by name."""
    found: dict[str, OsSummary] = {}
    for node_name, infos in answers.items():
        for info in infos:
            found.setdefault(info.name, OsSummary(info.name)).by_node[node_name] = info
    return [found[name] for name in sorted(found)]
