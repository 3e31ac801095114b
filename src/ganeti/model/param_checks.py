"""Checks of parameters that several interfaces share: pure, and the same for all of them."""

import re
from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.param import check_params, checked_value
from ganeti.model.params import (
    BACKEND_PARAMS,
    GROUP_BACKEND_PARAMS,
    MEMORY,
    NODE_PARAMS,
    Params,
)

_OS_PARAM = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)


def check_backend_params(given: Mapping[str, Any], field: str) -> Params:
    """Return backend parameters in stored form, including None; `memory` sets both bounds, sizes may have units."""
    params = {name: value for name, value in given.items() if name != MEMORY}
    checked = check_params(BACKEND_PARAMS, params, field, "backend")
    if MEMORY in given:
        size = given[MEMORY]
        if size is not None:
            size = checked_value(BACKEND_PARAMS["maxmem"], size, f"{field}.{MEMORY}")
        checked = {"minmem": size, "maxmem": size, **checked}
    return checked


def check_group_backend_params(given: Mapping[str, Any]) -> Params:
    """Return backend parameters of a node group in stored form, including None, which `default` spells as a word."""
    others = [name for name in (*BACKEND_PARAMS, MEMORY) if name not in GROUP_BACKEND_PARAMS]
    if refused := [name for name in others if name in given]:
        raise InputError(
            f"cannot be set for a node group, which has only {', '.join(GROUP_BACKEND_PARAMS)}; set it for the"
            " cluster or an instance",
            f"beparams.{refused[0]}",
        )
    meant = {name: None if value == "default" else value for name, value in given.items()}
    return check_params(GROUP_BACKEND_PARAMS, meant, "beparams", "backend")


def check_os_params(params: Mapping[str, str], field: str) -> None:
    """Refuse parameters that cannot be environment variables of OS scripts."""
    for name, value in params.items():
        if not _OS_PARAM.fullmatch(name):
            raise InputError(
                "not the name of a parameter: lower-case letters, digits and '_', at most 64",
                f"{field}[{name!r:.80}]",
            )
        if any(character in value for character in "\0\n\r"):
            raise InputError("must be one line of text", f"{field}.{name}")


def check_node_params(given: Mapping[str, Any]) -> Params:
    """Return node parameters in stored form, including None, which `default` spells as a word."""
    meant = {name: None if value == "default" else value for name, value in given.items()}
    return check_params(NODE_PARAMS, meant, "ndparams", "node")


def check_single_node_params(given: Mapping[str, Any]) -> Params:
    """Return parameters that one node may have of its own."""
    if given.get("exclusive_storage") is not None:
        raise InputError(
            "is the same for all nodes of a group; set it there (gnt-group modify --node-parameters)",
            "ndparams.exclusive_storage",
        )
    return check_node_params(given)


def changed(params: Params, changes: Mapping[str, Any]) -> Params:
    """Return parameters after a change; None removes one, so that the layer below applies again."""
    together = {**params, **changes}
    return {name: value for name, value in together.items() if value is not None}
