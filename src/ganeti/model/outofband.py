"""The commands of out-of-band programs, and the form of their answers; pure."""

import enum
import json
from typing import Any


class OobCommand(enum.StrEnum):
    """The first argument of an out-of-band program; the second one is the node's name."""

    POWER_ON = "power-on"
    POWER_OFF = "power-off"
    POWER_CYCLE = "power-cycle"
    POWER_STATUS = "power-status"
    HEALTH = "health"


HEALTH_STATES = frozenset({"OK", "WARNING", "CRITICAL", "UNKNOWN"})


def parse_answer(command: OobCommand, output: str) -> Any:
    """Return the data of an answer: `{"powered": bool}`, `[[item, status] …]`, else None.

    ValueError names the fault.
    """
    if command not in (OobCommand.POWER_STATUS, OobCommand.HEALTH):
        if output.strip():
            raise ValueError(f"{command} must print nothing on its standard output")
        return None
    try:
        data = json.loads(output)
    except (ValueError, RecursionError) as err:
        raise ValueError("its answer is not JSON") from err
    if command is OobCommand.POWER_STATUS:
        if not (isinstance(data, dict) and isinstance(data.get("powered"), bool)):
            raise ValueError('its answer must be {"powered": true} or {"powered": false}')
        return {"powered": data["powered"]}
    if not isinstance(data, list) or not all(_is_item(one) for one in data):
        raise ValueError(
            f"its answer must be a list of [item, status] with a status of {', '.join(sorted(HEALTH_STATES))}"
        )
    return data


def _is_item(value: Any) -> bool:
    match value:
        case [str(), str(status)]:
            return status in HEALTH_STATES
    return False
