"""Networks, which provide addresses for interfaces of instances."""

from collections.abc import Iterator

from ganeti.base.errors import ErrorCode, InputError
from ganeti.base.identifiers import plain_name
from ganeti.config.index import Claim, address_claim
from ganeti.config.kinds.kind import Kind, Problem, name_problems
from ganeti.config.view import View
from ganeti.model.address_pool import (
    AddressPool,
    checked_address,
    checked_subnet,
    checked_subnet6,
)
from ganeti.model.cluster_values import check_mac_prefix
from ganeti.model.objects import Cluster, Network


def _claims(_cluster: Cluster, network: Network) -> Iterator[Claim]:
    yield Claim("network name", network.name)


def _problems(view: View, network: Network) -> Iterator[Problem]:
    where = f"network {network.name}"
    yield from name_problems(plain_name, network.name, "network name")
    try:
        check_network(network)
    except InputError as err:
        yield err.code, f"{where}: {err}"
        return
    pool = AddressPool(network)
    for number in pool.reserved():
        address = pool.address(number)
        owner = view.index.owner(*address_claim(network.uuid, address))
        if owner is not None:
            user = view.instances.get(owner)
            yield (
                ErrorCode.WRONG_STATE,
                (
                    f"{where}: {address} cannot be reserved, because instance "
                    f"{(user.name if user else owner)} has it"
                ),
            )


def check_network(network: Network) -> None:
    """Refuse invalid subnets, gateways and prefixes; InputError names the field."""
    subnet = checked_subnet(network.network, "network")
    if network.gateway is not None:
        checked_address(network.gateway, subnet, "gateway")
    if network.network6 is not None:
        checked_subnet6(network.network6, "network6")
    if network.gateway6 is not None:
        if network.network6 is None:
            raise InputError("a gateway for IPv6 needs an IPv6 subnet (network6)", "gateway6")
        checked_address(network.gateway6, checked_subnet6(network.network6, "network6"), "gateway6")
    if network.mac_prefix is not None:
        check_mac_prefix(network.mac_prefix, "mac_prefix")


def _references(view: View, network: Network) -> Iterator[Problem]:
    groups = sorted(one.name for one in view.groups.values() if network.uuid in one.networks)
    if groups:
        text = (
            f"network {network.name} is connected to the group {groups[0]};"
            f" run first: gnt-network disconnect {network.name} {' '.join(groups)}"
        )
        yield ErrorCode.WRONG_STATE, text


NETWORK = Kind("network", Network, _claims, _problems, _references)
