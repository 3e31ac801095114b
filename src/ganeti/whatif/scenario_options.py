"""Steps of a scenario as options of the command: `--fail-node node3@10m/1h`, `--create 20:2g,10g,1@60/h`."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from ganeti.base.errors import InputError
from ganeti.whatif.messages import explained
from ganeti.whatif.scenario import POLICIES, Change, Created, Random, Spec, Step

_TIMES = re.compile(r"(.*?)@([0-9.]+[smhdw]?)?(?:/([0-9.]+[smhdw]?))?", re.ASCII)
_CREATED = re.compile(
    r"([0-9]{1,6})(?::([^@]*))?(?:@([^@/]+/[smhdw]))?(?:@([0-9.]+[smhdw]?))?", re.ASCII
)
_SPEC_FIELDS = ("memory", "disk", "vcpus", "template")
_RANDOM_PARTS = 3


def step_of(option: str, value: str) -> Step:
    """Return the step of one option, by its name without dashes; InputError names the option."""
    try:
        return _PARSERS[option](value)
    except InputError as err:
        raise InputError(err.message, f"--{option}") from err
    except msgspec.ValidationError as err:
        path, text = explained(str(err))
        name = ".".join(map(str, path))
        raise InputError(f"{value!r:.60}: {name} {text}", f"--{option}") from err


def _timed(value: str) -> tuple[str, dict[str, Any]]:
    """Split `WHAT[@AT][/FOR]` at its last mark; a tag may contain `@` and `/`."""
    what, mark, times = value.rpartition("@")
    found = _TIMES.fullmatch(f"@{times}") if mark else None
    if found is None or not what:
        return value, {}
    return what, {
        name: text for name, text in (("at", found[2]), ("duration", found[3])) if text is not None
    }


def _names(field: str) -> Callable[[str], Step]:
    def parsed(value: str) -> Step:
        what, times = _timed(value)
        names: Any = what.split(",") if "," in what else what
        return Step(**{field: names}, **times)

    return parsed


def _tag(field: str) -> Callable[[str], Step]:
    def parsed(value: str) -> Step:
        what, times = _timed(value)
        words: dict[str, Any] = {field: what, **times}
        return Step(**words)

    return parsed


def _add_nodes(value: str) -> Step:
    what, times = _timed(value)
    if not what.isdecimal():
        raise InputError(f"{value!r:.60} is not N[@AT]; use for example 2@10m")
    return Step(add_nodes=int(what), **times)


def _create(value: str) -> Step:
    found = _CREATED.fullmatch(value)
    if found is None:
        raise InputError(
            f"{value!r:.60} is not N[:MEMORY,DISK,VCPUS[,TEMPLATE]][@RATE][@AT];"
            " use for example 20:2g,10g,1,drbd@60/h"
        )
    words = found[2].split(",") if found[2] else []
    if len(words) > len(_SPEC_FIELDS):
        raise InputError(f"{found[2]!r:.60} has more than MEMORY,DISK,VCPUS,TEMPLATE")
    given = dict(zip(_SPEC_FIELDS, words, strict=False))
    spec = msgspec.convert(given, Spec, strict=False)
    return Step(create=Created(count=int(found[1]), spec=spec, rate=found[3] or ""), at=found[4])


def _set(value: str) -> Step:
    what, times = _timed(value)
    given: dict[str, str] = {}
    for pair in what.split(","):
        name, mark, text = pair.partition("=")
        if not mark or name not in POLICIES:
            raise InputError(f"{pair!r:.60} is not NAME=VALUE with a name of {', '.join(POLICIES)}")
        given[name] = {"yes": "true", "no": "false"}.get(text, text)
    return Step(set=msgspec.convert(given, Change, strict=False), **times)


def _random(value: str) -> Step:
    what, times = _timed(value)
    parts = what.split(",")
    if len(parts) != _RANDOM_PARTS:
        raise InputError(f"{value!r:.60} is not DAYS,MTBF,MTTR; use for example 7,30d,4h")
    days = msgspec.convert(parts[0].removesuffix("d"), float, strict=False)
    return Step(random=Random(days=days, mtbf=parts[1], mttr=parts[2]), **times)


_PARSERS: dict[str, Callable[[str], Step]] = {
    "fail-node": _names("fail_node"),
    "fail-rack": _tag("fail_rack"),
    "fail-group": _tag("fail_group"),
    "fail-switch": _tag("fail_switch"),
    "drain": _names("drain"),
    "evacuate": _names("evacuate"),
    "evacuate-primaries": _names("evacuate_primaries"),
    "add-nodes": _add_nodes,
    "create": _create,
    "set": _set,
    "random": _random,
}


def spoken(step: Step) -> str:
    """Return a step as one line of text, for the report."""
    given = msgspec.to_builtins(step)
    words = [f"at {given.pop('at')}:"] if step.at is not None else []
    given.pop("at", None)
    lasting = given.pop("for", None)
    words += [f"{name} {_value(value)}" for name, value in given.items() if value is not None]
    return " ".join([*words, *([f"for {lasting}"] if lasting else [])])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{name} {_value(one)}" for name, one in value.items() if one not in (None, "")
        )
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
