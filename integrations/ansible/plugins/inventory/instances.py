"""The instances of a Ganeti cluster as hosts of an inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: instances
short_description: Instances of a Ganeti cluster
description:
  - Each instance is a host, with the fields of C(GET /2/instances?bulk=1) as variables C(ganeti_FIELD); dots become underscores.
  - The file's name must end in C(ganeti.yml) or C(ganeti.yaml).
options:
  plugin:
    description: Name of this plugin.
    required: true
    choices: [ganeti.cluster.instances]
  address:
    description: Host of the REST interface, as V(HOST) or V(HOST:PORT).
    env: [{name: GANETI_ADDRESS}]
  user:
    description: User of the REST interface; with O(password).
    env: [{name: GANETI_USER}]
  password:
    description: Password of the user.
    env: [{name: GANETI_PASSWORD}]
  token:
    description: Token, instead of O(user) and O(password).
    env: [{name: GANETI_TOKEN}]
  ca_file:
    description: File with the certificate that signs the server's.
    type: path
    env: [{name: GANETI_CA_FILE}]
  validate_certs:
    description: Verify the server's certificate.
    type: bool
    default: true
  running_only:
    description: Leave instances out that do not run.
    type: bool
    default: false
extends_documentation_fragment: [constructed]
author: The Ganeti rebuild authors (@ganeti)
"""
EXAMPLES = r"""
plugin: ganeti.cluster.instances
address: cluster.example.com
running_only: true
keyed_groups:
  - {key: ganeti_tags, prefix: tag}
  - {key: ganeti_pnode, prefix: node}
compose:
  ansible_host: ganeti_nic_ips[0]
"""

from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible_collections.ganeti.cluster.plugins.module_utils.cluster import connect
from ansible_collections.ganeti.cluster.plugins.module_utils.ganeti_rest import RestError

CONNECTION = ("address", "user", "password", "token", "ca_file", "validate_certs")
SUFFIXES = ("ganeti.yml", "ganeti.yaml")


class InventoryModule(BaseInventoryPlugin, Constructable):
    """Reads all instances with one request."""

    NAME = "ganeti.cluster.instances"

    def verify_file(self, path: str) -> bool:
        """Return whether the file is for this plugin."""
        return bool(super().verify_file(path)) and path.endswith(SUFFIXES)

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Add the instances to the inventory."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        try:
            with connect({name: self.get_option(name) for name in CONNECTION}) as client:
                instances = client.instances()
        except (RestError, ValueError) as err:
            raise AnsibleParserError(f"{path}: {err}") from err
        strict = self.get_option("strict")
        for instance in instances:
            if self.get_option("running_only") and instance["status"] != "running":
                continue
            name = instance["name"]
            found = {f"ganeti_{key.replace('.', '_')}": value for key, value in instance.items()}
            self.inventory.add_host(name)
            for key, value in found.items():
                self.inventory.set_variable(name, key, value)
            self._set_composite_vars(self.get_option("compose"), found, name, strict=strict)
            self._add_host_to_composed_groups(self.get_option("groups"), found, name, strict=strict)
            self._add_host_to_keyed_groups(
                self.get_option("keyed_groups"), found, name, strict=strict
            )
