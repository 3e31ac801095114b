"""Summarises the nodes' reports about OS definitions. Pure."""

from collections.abc import Callable, Mapping
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
    """Node name -> its definition."""

    def problems(self, nodes: set[str]) -> list[str]:
        """Return why it is not valid: it must be usable, and the same, on all of `nodes` (S141)."""
        found = []
        if missing := sorted(nodes - self.by_node.keys()):
            found.append(f"missing on {', '.join(missing)}")
        if broken := sorted(name for name, info in self.by_node.items() if info.problem):
            found.append(f"not usable on {', '.join(broken)}")
        parts: dict[str, Callable[[OsInfo], str]] = {
            "versions": lambda info: info.version or "none",
            "variants": lambda info: ", ".join(info.variants) or "none",
            "API versions": lambda info: ", ".join(map(str, info.api_versions)) or "none",
        }
        for what, shown in parts.items():
            by_value: dict[str, list[str]] = {}
            for node, info in sorted(self.by_node.items()):
                by_value.setdefault(shown(info), []).append(node)
            if len(by_value) > 1:
                said = "; ".join(f"{value} on {', '.join(on)}" for value, on in by_value.items())
                found.append(f"the {what} differ: {said}")
        return found

    def variants(self) -> list[str]:
        """Return the variants that every node has."""
        sets = [set(info.variants) for info in self.by_node.values()]
        return sorted(set.intersection(*sets)) if sets else []

    def values(self, cluster: Cluster, nodes: set[str]) -> dict[str, Any]:
        """Return all fields."""
        first, problems = next(iter(self.by_node.values())), self.problems(nodes)
        return {
            "name": self.name,
            "valid": not problems,
            "problems": problems,
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
    """Return the cluster's parameters for an OS and its variants: NAME and NAME+VARIANT -> parameters."""
    return {os: params for os, params in by_os.items() if base_name(os) == name}


def summarize(answers: dict[str, list[OsInfo]]) -> list[OsSummary]:
    """Return one summary for each OS, by name, from node name -> its definitions."""
    found: dict[str, OsSummary] = {}
    for node_name, infos in answers.items():
        for info in infos:
            found.setdefault(info.name, OsSummary(info.name)).by_node[node_name] = info
    return [found[name] for name in sorted(found)]
