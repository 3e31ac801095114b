"""The choice of a secondary node for an instance without one, before its template becomes a mirrored one."""

import msgspec

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.placement.allocate import allocate_on
from ganeti.placement.places import NO_NODE, Rules, SearchResult
from ganeti.placement.state import State


def allocate_secondary(state: State, index: int, rules: Rules) -> SearchResult:
    """Choose and set the best partner of the instance's primary node; PrereqError if there is none."""
    primary = int(state.primary[index])
    one = state.descriptions[index]
    if int(state.secondary[index]) != NO_NODE:
        raise PrereqError(f"instance {one.name} has a secondary node", ErrorCode.WRONG_STATE)
    state.remove_primary(index, primary)
    state.primary[index] = NO_NODE
    wanted = msgspec.structs.replace(one, template="drbd", primary="", secondary="")
    open_ = (state.group == state.group[primary]) & ~state.offline
    open_[primary] = True
    place = allocate_on(state, wanted, open_, msgspec.structs.replace(rules, only_primary=primary))
    if not place.nodes:
        raise PrereqError(place.note or place.describe(state), ErrorCode.NO_RESOURCES)
    state.primary[index], state.secondary[index] = place.pair
    state.add_primary(index, primary)
    state.add_secondary(index, place.nodes[1], primary)
    return place
