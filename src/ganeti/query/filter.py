"""Filters, as lists: `["&", ["=", "pnode", "node1"], ["=~", "name", "^web"]]`.

| operator | means |
|---|---|
| `&` `|` `!` | all, any, not |
| `?` | the field is true, or not empty |
| `=` `==` `!=` `<` `<=` `>` `>=` | compared with a value; a list equals a value that it contains |
| `=*` `=~` | matches a pattern of `*` and `?`; matches a regular expression anywhere |
| `=[]` | the list contains the value |

A missing value (offline, no data) passes no comparison. A filter that only lists names requests these objects in this
order, by any accepted form of the name (a short name, a UUID), and is refused if one does not exist.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.suggestions import did_you_mean
from ganeti.query.fields.field import Field, Missing, Need, ValueKind
from ganeti.query.pattern import Pattern, glob_pattern

R = TypeVar("R")

DEPTH_LIMIT = 32
SIZE_LIMIT = 20_000
"""The limit of operators in one filter: they compile in less than half a second, which blocks the master."""
PATTERNS_LIMIT = 500
"""The limit of patterns among them, each of which takes up to half a millisecond."""

Predicate = Callable[[R], bool]


class CompiledFilter(NamedTuple, Generic[R]):
    """A filter that can be applied to rows."""

    passes: Predicate[R]
    needs: frozenset[Need] = frozenset()
    named: frozenset[Any] | None = None
    """The only values of the key field that can match, if the filter lists them."""
    listed: tuple[Any, ...] | None = None
    """The same if the filter contains nothing else: then each of them must exist."""
    place: Callable[[R], int] | None = None
    """Sorts rows in the order of such a list."""


EVERYTHING = CompiledFilter[Any](lambda _row: True)


def compile_filter(raw: Any, fields: Mapping[str, Field[R]], key: str) -> CompiledFilter[R]:
    """Compile a client's filter; InputError names the fault (A23)."""
    if raw is None:
        return EVERYTHING
    compiler = _Compiler(fields)
    predicate = compiler.predicate(raw, 0)
    needs = frozenset(compiler.needs)
    return CompiledFilter(predicate, needs, _named(raw, key), listed_values(raw, key))


def listed_values(raw: Any, key: str) -> tuple[Any, ...] | None:
    """Return the values of the key field if the filter lists such values and says nothing else."""
    match raw:
        case ["=" | "==", str(name), str() | int() as value] if name == key:
            return (value,)
        case ["|", *parts] if parts:
            found = [listed_values(part, key) for part in parts]
            if all(one is not None for one in found):
                return tuple(value for one in found if one is not None for value in one)
    return None


def _named(raw: Any, key: str) -> frozenset[Any] | None:
    if (listed := listed_values(raw, key)) is not None:
        return frozenset(listed)
    match raw:
        case ["|", *parts] if parts:
            found = [_named(part, key) for part in parts]
            if all(one is not None for one in found):
                return frozenset[Any]().union(*(one for one in found if one is not None))
        case ["&", *parts]:
            return next((one for part in parts if (one := _named(part, key)) is not None), None)
    return None


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Compiler(Generic[R]):
    def __init__(self, fields: Mapping[str, Field[R]]) -> None:
        self._fields = fields
        self._size = 0
        self._patterns = 0
        self.needs: set[Need] = set()

    def predicate(self, raw: Any, depth: int) -> Predicate[R]:
        self._size += 1
        if depth > DEPTH_LIMIT:
            raise InputError(f"nested deeper than {DEPTH_LIMIT} levels", "filter")
        if self._size > SIZE_LIMIT:
            raise InputError(f"has more than {SIZE_LIMIT} operators", "filter")
        match raw:
            case [str(word), str(name), operand] if word not in ("&", "|"):
                return self._comparison(word, self._field(name), operand)
            case ["&", *parts]:
                return self._all(parts, depth)
            case ["|", *parts]:
                return self._any(parts, depth)
            case ["!", part]:
                inner = self.predicate(part, depth + 1)
                return lambda row: not inner(row)
            case ["?", str(name)]:
                return self._test(self._field(name), bool)
        raise InputError(f"{raw!r:.60} is not an operator with its operands", "filter")

    def _all(self, parts: list[Any], depth: int) -> Predicate[R]:
        inner = [self.predicate(part, depth + 1) for part in parts]
        return lambda row: all(one(row) for one in inner)

    def _any(self, parts: list[Any], depth: int) -> Predicate[R]:
        # `gnt-instance list NAME …` makes one long list of equalities: use a lookup instead.
        if len(parts) > 1 and (common := _same_text_equality(parts)) is not None:
            field = self._field(common[0])
            if field.kind is ValueKind.TEXT and not field.is_host_name:
                return self._test(field, lambda value: value in common[1])
        inner = [self.predicate(part, depth + 1) for part in parts]
        return lambda row: any(one(row) for one in inner)

    def _field(self, name: str) -> Field[R]:
        field = self._fields.get(name)
        if field is None:
            close = did_you_mean(name, self._fields)
            raise InputError(f"unknown field {name!r:.60}{close}", "filter")
        self.needs |= field.needs
        return field

    def _test(self, field: Field[R], test: Callable[[Any], bool]) -> Predicate[R]:
        def passes(row: R) -> bool:
            value = field.value(row)
            return not isinstance(value, Missing) and test(value)

        return passes

    def _comparison(self, word: str, field: Field[R], operand: Any) -> Predicate[R]:
        if word in ("=", "=="):
            return self._test(field, _equals(field, _typed(field, operand)))
        if word == "!=":
            equals = _equals(field, _typed(field, operand))
            return self._test(field, lambda value: not equals(value))
        if word in _ORDERS:
            return self._test(field, _order(_ORDERS[word], _typed(field, operand)))
        if word == "=[]":
            return self._test(field, _contains(operand))
        if word in ("=~", "=*"):
            if not isinstance(operand, str):
                raise InputError(f"{word} needs a text", "filter")
            self._patterns += 1
            if self._patterns > PATTERNS_LIMIT:
                raise InputError(f"has more than {PATTERNS_LIMIT} patterns", "filter")
            return self._test(field, _matches(word, field, operand))
        raise InputError(f"unknown operator {word!r:.20}", "filter")


def _same_text_equality(parts: list[Any]) -> tuple[str, frozenset[str]] | None:
    names: set[str] = set()
    values: set[str] = set()
    for part in parts:
        match part:
            case ["=" | "==", str(name), str(value)]:
                names.add(name)
                values.add(value)
            case _:
                return None
    return (names.pop(), frozenset(values)) if len(names) == 1 else None


_PLAIN_VALUES = (str, int, float, type(None))
_SEVERAL = (list, tuple)


def _typed(field: Field[Any], operand: Any) -> Any:
    """Return the operand in the type of the field's values; text from a command line is converted."""
    if not isinstance(operand, _PLAIN_VALUES):
        raise InputError(f"{operand!r:.40} is not a value", "filter")
    if field.kind is ValueKind.TEXT:
        return operand if operand is None or isinstance(operand, str) else str(operand)
    if not isinstance(operand, str):
        return operand
    if field.kind is ValueKind.BOOL and operand.lower() in _BOOLEANS:
        return _BOOLEANS[operand.lower()]
    if field.kind is ValueKind.UNIT:
        return parse_mib(operand, "filter")
    if field.kind in (ValueKind.NUMBER, ValueKind.FLOAT, ValueKind.TIMESTAMP):
        try:
            return float(operand)
        except ValueError:
            raise InputError(
                f"{field.name} is a number, but {operand!r:.40} is not", "filter"
            ) from None
    return operand


_BOOLEANS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


def _equals(field: Field[Any], wanted: Any) -> Callable[[Any], bool]:
    prefix = f"{wanted}." if field.is_host_name else None

    def same(value: Any) -> bool:
        if value == wanted and isinstance(value, bool) == isinstance(wanted, bool):
            return True
        return prefix is not None and isinstance(value, str) and value.startswith(prefix)

    return lambda value: any(map(same, value)) if isinstance(value, _SEVERAL) else same(value)


def _order(compare: Callable[[Any, Any], bool], limit: Any) -> Callable[[Any], bool]:
    is_text = isinstance(limit, str)

    def test(value: Any) -> bool:
        if is_text:
            return isinstance(value, str) and compare(value, limit)
        return isinstance(value, int | float) and limit is not None and compare(value, limit)

    return test


def _contains(wanted: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple | dict) and wanted in value


def _matches(word: str, field: Field[Any], text: str) -> Callable[[Any], bool]:
    test: Callable[[str], bool]
    if word == "=~":
        test = Pattern(text).search
    else:
        test = glob_pattern(text, is_name=field.is_host_name).full_match

    def matches(value: Any) -> bool:
        if isinstance(value, _SEVERAL):
            return any(isinstance(one, str) and test(one) for one in value)
        return isinstance(value, str) and test(value)

    return matches
