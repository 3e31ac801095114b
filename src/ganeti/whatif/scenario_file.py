"""Reading a scenario with strict types, from a file (YAML) or a request; each error names the place, the rule and the remedy.

YAML is read as nested texts: no tags, no anchors, and no types that depend on the form of a word. So `no` and `10:30`
stay what the author wrote, until the field that they are for says what they must be.
"""

import re
from collections.abc import Callable
from enum import EnumType
from typing import Any, NoReturn

import msgspec
import yaml

from ganeti.base.errors import InputError
from ganeti.base.suggestions import did_you_mean
from ganeti.whatif.messages import Path, explained
from ganeti.whatif.scenario import Scenario, Step

LARGEST_BYTES = 256 * 1024
DEEPEST = 8
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_YES_NO = {"yes": "true", "no": "false", "on": "true", "off": "false"}

Lines = dict[Path, int]
Locate = Callable[[Path], str]
"""Tells people where a value of a scenario is."""


class ParsedScenario(msgspec.Struct, frozen=True):
    """A scenario, and the line of each of its steps."""

    scenario: Scenario
    lines: tuple[int, ...] = ()


def parse_scenario(text: str, name: str) -> ParsedScenario:
    """Return the scenario of a file; InputError names the file and the line."""
    if len(text) > LARGEST_BYTES:
        raise InputError(f"is larger than {LARGEST_BYTES // 1024} KiB; shorten the scenario", name)
    lines: Lines = {}
    value = _plain(_node(text, name), (), lines, name)
    scenario = scenario_of(value or {}, name, lambda path: f"line {_line(path, lines)}")
    return ParsedScenario(
        scenario, tuple(lines[("steps", index)] for index in range(len(scenario.steps)))
    )


def scenario_of(value: Any, name: str, locate: Locate) -> Scenario:
    """Return the scenario of plain values; InputError."""
    try:
        scenario: Scenario = msgspec.convert(value, Scenario, strict=False)
    except msgspec.ValidationError as err:
        _refuse(str(err), locate, name)
    return scenario


def _line(path: Path, lines: Lines) -> int:
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _node(text: str, name: str) -> yaml.Node | None:
    try:
        _check_events(text, name)
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as err:
        mark: yaml.error.Mark | None = err.problem_mark or err.context_mark
        at = "the file" if mark is None else f"line {mark.line + 1}"
        raise InputError(f"{at} is not YAML: {err.problem or err.context}", name) from err
    except yaml.YAMLError as err:
        raise InputError(f"is not YAML: {err}", name) from err
    return node


def _check_events(text: str, name: str) -> None:
    """Refuse what a scenario does not need, before anything recursive reads the file."""
    depth = 0
    event: Any
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InputError(f"line {line} has an anchor or an alias; write the value itself", name)
        if getattr(event, "tag", None):
            raise InputError(
                f"line {line} has a tag ({event.tag}); write the value without it", name
            )
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise InputError(f"line {line} is nested deeper than {DEEPEST} levels", name)


def _plain(node: yaml.Node | None, path: Path, lines: Lines, name: str) -> Any:
    """Return a node as nested dictionaries, lists and texts; record its line."""
    if node is None:
        return None
    line = lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_plain(one, (*path, index), lines, name) for index, one in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise InputError(f"line {line} has a key that is not a word", name)
            if key.value in found:
                raise InputError(
                    f"line {key.start_mark.line + 1} has {key.value!r:.40} twice", name
                )
            found[key.value] = _plain(value, (*path, key.value), lines, name)
            lines[(*path, key.value)] = key.start_mark.line + 1
        return found
    text = str(node.value)
    is_bare = isinstance(node, yaml.ScalarNode) and node.style is None
    return _YES_NO.get(text, text) if is_bare else text


def _refuse(message: str, locate: Locate, name: str) -> NoReturn:
    """Raise the InputError for a message of msgspec."""
    path, text = explained(message)
    if unknown := _UNKNOWN.match(text):
        path = (*path, unknown[1])
        known = [one.encode_name for one in msgspec.structs.fields(_struct_at(path))]
        close = did_you_mean(unknown[1], known)
        text = f"there is no field {unknown[1]!r:.40}{close}; known: {', '.join(known)}"
    if text.startswith("Invalid enum value"):
        text = f"must be one of {', '.join(_enum_at(path))}, not {text.rpartition(' ')[2]}"
    field = ".".join(str(one) for one in path if isinstance(one, str) and one != "steps")
    where = f"{field}: " if field and not unknown else ""
    raise InputError(f"{locate(path)}: {where}{text}", name)


def _struct_at(path: Path) -> Any:
    """Return the struct with the fields of this path's last word."""
    kind: Any = Scenario
    for word in path[:-1]:
        if word == "steps":
            kind = Step
        elif isinstance(word, str):
            kind = next(one.type for one in msgspec.structs.fields(kind) if one.encode_name == word)
            kind = next(
                one
                for one in (kind, *getattr(kind, "__args__", ()))
                if isinstance(one, type) and issubclass(one, msgspec.Struct)
            )
    return kind


def _enum_at(path: Path) -> list[str]:
    """Return the possible words at this path."""
    fields = msgspec.structs.fields(_struct_at(path))
    kind: Any = next(one.type for one in fields if one.encode_name == path[-1])
    kinds = (kind, *getattr(kind, "__args__", ()))
    return [word for one in kinds if isinstance(one, EnumType) for word in map(str, list(one))]
