"""The NoCloud seed of cloud-init: the identity of the instance, its network, and its owner's settings; pure.

JSON is YAML, so nothing needs to be quoted by hand. Source: cloud-init's NoCloud and network configuration
version 2.
"""

import ipaddress
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.errors import InputError

LABEL = "CIDATA"
META_DATA, USER_DATA, NETWORK = "meta-data", "user-data", "network-config"
NOTHING = b"#cloud-config\n{}\n"


def seed_files(
    environment: Mapping[str, str], *, user_data: bytes, ssh_key: str = "", dns: Sequence[str] = ()
) -> dict[str, bytes]:
    """Return the files of a seed for the instance in an OS script's environment."""
    facts: dict[str, Any] = {
        "instance-id": _instance_id(environment),
        "local-hostname": environment["INSTANCE_NAME"],
    }
    if ssh_key:
        facts["public-keys"] = [ssh_key]
    return {
        META_DATA: _json(facts),
        USER_DATA: user_data or NOTHING,
        NETWORK: _network(environment, dns),
    }


def renamed(
    files: Mapping[str, bytes], environment: Mapping[str, str], dns: Sequence[str] = ()
) -> dict[str, bytes]:
    """Return the same seed with another name; InputError if another program wrote the seed.

    A clone or an import also gets its own instance id, by which cloud-init notices the new machine, and its own
    interfaces.
    """
    try:
        facts = json.loads(files[META_DATA])
        is_same = facts["instance-id"] == _instance_id(environment)
        facts["instance-id"] = _instance_id(environment)
        facts["local-hostname"] = environment["INSTANCE_NAME"]
    except (KeyError, TypeError, ValueError) as err:
        raise InputError("was not written by this definition", META_DATA) from err
    network = {} if is_same else {NETWORK: _network(environment, dns)}
    return {**files, META_DATA: _json(facts), **network}


def _instance_id(environment: Mapping[str, str]) -> str:
    return f"iid-{environment['INSTANCE_UUID']}"


def _network(environment: Mapping[str, str], dns: Sequence[str]) -> bytes:
    return _json({"version": 2, "ethernets": _interfaces(environment, dns)})


def _interfaces(environment: Mapping[str, str], dns: Sequence[str]) -> dict[str, Any]:
    # With the new name, because `ifupdown` and others configure an interface by this key.
    return {
        f"eth{number}": {
            "match": {"macaddress": environment[f"NIC_{number}_MAC"]},
            "set-name": f"eth{number}",
            **_addresses(environment, f"NIC_{number}_", dns),
        }
        for number in range(int(environment.get("NIC_COUNT", "0")))
    }


def _addresses(environment: Mapping[str, str], prefix: str, dns: Sequence[str]) -> dict[str, Any]:
    """Return the address that the cluster assigned, if its network is known; otherwise DHCP."""
    address, subnet = (environment.get(f"{prefix}{name}") for name in ("IP", "NETWORK_SUBNET"))
    if not address or not subnet:
        return {"dhcp4": True}
    network = ipaddress.ip_network(subnet, strict=False)
    found: dict[str, Any] = {"addresses": [f"{address}/{network.prefixlen}"]}
    if gateway := environment.get(f"{prefix}NETWORK_GATEWAY"):
        found["routes"] = [{"to": "0.0.0.0/0", "via": gateway}]
    if dns:
        found["nameservers"] = {"addresses": list(dns)}
    return found


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
