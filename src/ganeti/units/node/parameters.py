"""What may be said about a node: pure checks."""

from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.hypervisor_params import typed_value
from ganeti.model.params import NODE_DEFAULTS, Params


def check_node_params(given: Mapping[str, Any]) -> Params:
    """Node parameters with values in their types, None among them; unknown ones are refused."""
    for name in given:
        if name not in NODE_DEFAULTS:
            known = ", ".join(NODE_DEFAULTS)
            raise InputError(f"no such node parameter; known: {known}", f"ndparams.{name}")
    return {
        name: None if value is None else typed_value(value, NODE_DEFAULTS[name], f"ndparams.{name}")
        for name, value in given.items()
    }


def changed(params: Params, changes: Mapping[str, Any]) -> Params:
    """Parameters after a change; None takes one away, so that the layer below counts again."""
    together = {**params, **changes}
    return {name: value for name, value in together.items() if value is not None}
