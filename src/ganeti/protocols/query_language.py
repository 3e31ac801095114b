"""The filter language of `-F`: converts text to list filters (which `query/filter.py` runs).

filter     = term { "or" term }            term = factor { "and" factor }
factor     = "not" factor | "(" filter ")" | condition
condition  = field [ ("==" | "=" | "!=" | "<" | "<=" | ">" | ">=") value ]
           | field ("=~" | "!~" | "=*" | "!*") pattern
           | value ["not"] "in" field
value      = number | "text" | 'text' | word          pattern = m/text/i | "text" | word

A field alone tests whether it is true, or not empty.
"""

import re
from typing import Any, NamedTuple

from ganeti.base.errors import InputError

DEPTH_LIMIT = 32
LENGTH_LIMIT = 64 * 1024

Filter = list[Any]

_SYNTAX = r"""(?x)\s*(?:
        (?P<operator>==|!=|<=|>=|=~|!~|=\*|!\*|=|<|>|\(|\))
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<pattern>m/(?:[^/\\]|\\.)*/i?)
      | (?P<word>[^\s()=<>!"']+)
    )"""
_NUMBER = r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?"
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PATTERNS = {"=~": "=~", "!~": "=~", "=*": "=*", "!*": "=*"}


class _Token(NamedTuple):
    kind: str
    text: str


def parse_filter(text: str) -> Filter:
    """Parse the filter in `text`; InputError gives the position of a fault."""
    if len(text) > LENGTH_LIMIT:
        raise InputError(f"is longer than {LENGTH_LIMIT} characters", "filter")
    parser = _Parser(_tokens(text))
    found = parser.alternatives(0)
    parser.expect_end()
    return found


def is_glob(text: str) -> bool:
    """Return whether a name on the command line is a pattern of names."""
    return any(char in text for char in "*?[")


def names_filter(field: str, names: list[str]) -> Filter | None:
    """Return a filter for rows whose `field` is one of `names`, which may hold `*` and `?`; None for no names."""
    if not names:
        return None
    return ["|", *(["=*" if is_glob(name) else "==", field, name] for name in names)]


def both(one: Filter | None, other: Filter | None) -> Filter | None:
    """Return a filter for rows that pass both filters; None passes all."""
    if one is None or other is None:
        return one or other
    return ["&", one, other]


def _tokens(text: str) -> list[_Token]:
    pattern = re.compile(_SYNTAX)
    tokens = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        found = pattern.match(text, position)
        if not found or not found.lastgroup:
            raise InputError(f"cannot be understood from {text[position:][:30]!r} on", "filter")
        tokens.append(_Token(found.lastgroup, found[found.lastgroup]))
        position = found.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def alternatives(self, depth: int) -> Filter:
        return self._chain("or", "|", depth)

    def expect_end(self) -> None:
        if (token := self._peek()) is not None:
            raise InputError(f"{token.text!r:.40} is not expected there", "filter")

    def _chain(self, word: str, operator: str, depth: int) -> Filter:
        if depth > DEPTH_LIMIT:
            raise InputError(f"nested deeper than {DEPTH_LIMIT} levels", "filter")
        parts = [self._part(word, depth)]
        while self._take("word", word):
            parts.append(self._part(word, depth))
        return parts[0] if len(parts) == 1 else [operator, *parts]

    def _part(self, word: str, depth: int) -> Filter:
        return self._chain("and", "&", depth) if word == "or" else self._factor(depth)

    def _factor(self, depth: int) -> Filter:
        if depth > DEPTH_LIMIT:
            raise InputError(f"nested deeper than {DEPTH_LIMIT} levels", "filter")
        if self._take("word", "not"):
            return ["!", self._factor(depth + 1)]
        if self._take("operator", "("):
            inside = self.alternatives(depth + 1)
            if not self._take("operator", ")"):
                raise InputError("a closing parenthesis is missing", "filter")
            return inside
        return self._condition()

    def _condition(self) -> Filter:
        first = self._pop("a field or a value")
        negated = self._take("word", "not")
        if self._take("word", "in"):
            field = self._pop("a field")
            inside: Filter = ["=[]", field.text, _value(first)]
            return ["!", inside] if negated else inside
        if negated or first.kind != "word":
            raise InputError(f"'in' is missing after {first.text!r:.40}", "filter")
        return self._comparison(first.text)

    def _comparison(self, field: str) -> Filter:
        token = self._peek()
        if token is None or token.kind != "operator" or token.text in "()":
            return ["?", field]
        self._next += 1
        operand = self._pop("a value")
        if token.text in _COMPARISONS:
            return [_COMPARISONS[token.text], field, _value(operand)]
        matches: Filter = [_PATTERNS[token.text], field, _pattern(operand)]
        return ["!", matches] if token.text.startswith("!") else matches

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _pop(self, wanted: str) -> _Token:
        token = self._peek()
        if token is None or token.kind == "operator":
            raise InputError(f"{wanted} is missing at the end or before an operator", "filter")
        self._next += 1
        return token

    def _take(self, kind: str, text: str) -> bool:
        if self._peek() == (kind, text):
            self._next += 1
            return True
        return False


def _value(token: _Token) -> str | int | float | bool:
    if token.kind == "text":
        return re.sub(r"\\(.)", r"\1", token.text[1:-1])
    if token.text in ("true", "false"):
        return token.text == "true"
    if re.fullmatch(_NUMBER, token.text):
        return float(token.text) if "." in token.text else int(token.text)
    return token.text


def _pattern(token: _Token) -> str:
    if token.kind == "pattern":
        body, _, flags = token.text[2:].rpartition("/")
        return ("(?i)" if flags else "") + body.replace("\\/", "/")
    if token.kind == "text":
        return token.text[1:-1]
    return token.text
