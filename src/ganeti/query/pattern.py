r"""Regular expressions that are matched in time linear in the text (A23).

The usual engine tries alternatives one after the other and can take for ever on a pattern such
as `(a+)+$`. This one follows all alternatives at once. It knows literals, `.`, classes, `\d \w
\s` and their opposites, groups, `|`, `* + ? {m,n}` (lazy ones mean the same here), `^`, `$` and
a leading `(?i)`; back references and look-around are refused.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ganeti.base.errors import InputError

LENGTH_LIMIT = 512
STATES_LIMIT = 4_000
CACHE_LIMIT = 4_000
DEPTH_LIMIT = 32
REPEAT_DIGITS = 3

Test = Callable[[str], bool]


class _State:
    """One position in the pattern: a test and its successor, or only successors (`test` is None)."""

    __slots__ = ("anchor", "next", "number", "test")

    def __init__(self, number: int) -> None:
        self.number = number
        self.test: Test | None = None
        self.anchor = ""
        self.next: list[_State] = []


class _Piece(NamedTuple):
    """A part of the automaton: one entry, one exit."""

    start: _State
    end: _State


class Pattern:
    """Compile a pattern; InputError if it is malformed, or too large."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_LIMIT:
            raise InputError(f"is longer than {LENGTH_LIMIT} characters", "pattern")
        self._ignore_case = text.startswith("(?i)")
        body = text.removeprefix("(?i)")
        piece = _Parser(body.lower() if self._ignore_case else body).parse()
        self._start, self._end = piece
        self._cache: dict[tuple[frozenset[_State], str], frozenset[_State]] = {}

    def search(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in `text`."""
        return self._run(text.lower() if self._ignore_case else text, is_anchored=False)

    def full_match(self, text: str) -> bool:
        """Return whether the pattern matches all of `text`."""
        return self._run(text.lower() if self._ignore_case else text, is_anchored=True)

    def _run(self, text: str, *, is_anchored: bool) -> bool:
        at_start = self._closure([self._start], {"^", "$"} if not text else {"^"})
        if not is_anchored and self._end in at_start:
            return True
        again = frozenset[_State]() if is_anchored else self._closure([self._start], set())
        now = at_start
        last = len(text) - 1
        for index, char in enumerate(text):
            now = self._step(now, char, is_last=index == last)
            if not is_anchored:
                if self._end in now:
                    return True
                now |= again if index != last else self._closure([self._start], {"$"})
                if self._end in now:
                    return True
            elif not now:
                return False
        return self._end in now

    def _step(self, now: frozenset[_State], char: str, *, is_last: bool) -> frozenset[_State]:
        if is_last:
            return self._after(now, char, {"$"})
        key = (now, char)
        found = self._cache.get(key)
        if found is None:
            found = self._after(now, char, set())
            if len(self._cache) < CACHE_LIMIT:
                self._cache[key] = found
        return found

    def _after(self, now: frozenset[_State], char: str, anchors: set[str]) -> frozenset[_State]:
        reached = [way for one in now if one.test and one.test(char) for way in one.next]
        return self._closure(reached, anchors)

    def _closure(self, states: Iterable[_State], anchors: set[str]) -> frozenset[_State]:
        """Return all states that are reached without reading a character."""
        seen: set[_State] = set()
        todo = list(states)
        while todo:
            state = todo.pop()
            if state in seen or (state.anchor and state.anchor not in anchors):
                continue
            seen.add(state)
            if state.test is None:
                todo.extend(state.next)
        return frozenset(seen)


class _Parser:
    """Converts text to an automaton, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._states = 0

    def parse(self) -> _Piece:
        piece = self._alternatives(0)
        if self._at < len(self._text):
            raise self._wrong("an unexpected ')'")
        return piece

    def _alternatives(self, depth: int) -> _Piece:
        if depth > DEPTH_LIMIT:
            raise self._wrong("too many nested groups")
        pieces = [self._sequence(depth)]
        while self._take("|"):
            pieces.append(self._sequence(depth))
        if len(pieces) == 1:
            return pieces[0]
        start, end = self._new(), self._new()
        for piece in pieces:
            start.next.append(piece.start)
            piece.end.next.append(end)
        return _Piece(start, end)

    def _sequence(self, depth: int) -> _Piece:
        start = end = self._new()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            piece = self._repeated(depth)
            end.next.append(piece.start)
            end = piece.end
        return _Piece(start, end)

    def _repeated(self, depth: int) -> _Piece:
        begin = self._at
        piece = self._atom(depth)
        least, most = self._count()
        if (least, most) == (1, 1):
            return piece
        if self._text[self._at : self._at + 1] in ("*", "+", "{"):
            raise self._wrong("a repetition of a repetition")
        resume = self._at
        copies = max(least, most or 0, 1)
        pieces = [piece]
        for _ in range(copies - 1):
            # The same text is parsed once more for each repetition that has a number.
            self._at = begin
            pieces.append(self._atom(depth))
        self._at = resume
        return self._joined(pieces, least, most)

    def _joined(self, pieces: list[_Piece], least: int, most: int | None) -> _Piece:
        """Concatenate `pieces`, those beyond `least` optional, the last one unbounded."""
        start, end = self._new(), self._new()
        now = start
        if most == 0:
            pieces = []
        for index, piece in enumerate(pieces):
            if index >= least:
                now.next.append(end)
            now.next.append(piece.start)
            now = piece.end
        now.next.append(end)
        if most is None:
            now.next.append(pieces[-1].start)
        return _Piece(start, end)

    def _count(self) -> tuple[int, int | None]:
        """Return the repetition after an atom, as least and most (None: unbounded)."""
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        char = self._text[self._at : self._at + 1]
        if char in simple:
            self._at += 1
            found = simple[char]
        elif char == "{":
            found = self._braces()
        else:
            return 1, 1
        self._take("?")
        return found

    def _braces(self) -> tuple[int, int | None]:
        inside, closed, _ = self._text[self._at + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        numbers = [part for part in (low, high) if part]
        if (
            not closed
            or not low
            or not all(n.isdecimal() and len(n) <= REPEAT_DIGITS for n in numbers)
        ):
            raise self._wrong("a '{' without numbers as in {2,5}")
        self._at += len(inside) + 2
        least = int(low)
        most = int(high) if high else None if comma else least
        if most is not None and most < least:
            raise self._wrong("a repetition that ends before it begins")
        return least, most

    def _atom(self, depth: int) -> _Piece:
        char = self._pop()
        if char == "(":
            if self._take("?") and not self._take(":"):
                raise self._wrong("look-around and other '(?' groups are not supported")
            piece = self._alternatives(depth + 1)
            if not self._take(")"):
                raise self._wrong("a missing ')'")
            return piece
        if char in "^$":
            return self._anchor(char)
        if char in "*+?{":
            raise self._wrong(f"nothing before {char!r} to repeat")
        if char == ".":
            return self._reading(lambda got: got != "\n")
        if char == "[":
            return self._reading(self._class())
        if char == "\\":
            return self._reading(self._escape())
        return self._reading(lambda got: got == char)

    def _class(self) -> Test:
        is_negative = self._take("^")
        tests: list[Test] = []
        while not self._take("]") or not tests:
            low = self._pop() if tests or self._text[self._at - 1] != "]" else "]"
            if low == "\\":
                tests.append(self._escape())
                continue
            if self._text[self._at : self._at + 1] == "-" and self._text[
                self._at + 1 : self._at + 2
            ] not in ("]", ""):
                self._at += 1
                high = self._pop()
                if high == "\\" or high < low:
                    raise self._wrong("a range that ends before it begins")
                tests.append(_between(low, high))
            else:
                tests.append(_between(low, low))
        return lambda got: any(test(got) for test in tests) is not is_negative

    def _escape(self) -> Test:
        char = self._pop()
        if char.lower() in _CLASSES:
            inside = _CLASSES[char.lower()]
            return (lambda got: not inside(got)) if char.isupper() else inside
        if char.isalnum():
            raise self._wrong(f"\\{char} is not supported")
        return _between(char, char)

    def _reading(self, test: Test) -> _Piece:
        start, end = self._new(), self._new()
        start.test = test
        start.next.append(end)
        return _Piece(start, end)

    def _anchor(self, char: str) -> _Piece:
        start = self._new()
        start.anchor = char
        return _Piece(start, start)

    def _new(self) -> _State:
        self._states += 1
        if self._states > STATES_LIMIT:
            raise self._wrong("too many repetitions")
        return _State(self._states)

    def _take(self, char: str) -> bool:
        if self._text[self._at : self._at + 1] == char:
            self._at += 1
            return True
        return False

    def _pop(self) -> str:
        if self._at >= len(self._text):
            raise self._wrong("an end where more must follow")
        self._at += 1
        return self._text[self._at - 1]

    def _wrong(self, what: str) -> InputError:
        return InputError(f"{self._text!r:.80} has {what}, at character {self._at}", "pattern")


_CLASSES: dict[str, Test] = {
    "d": lambda got: got.isdecimal(),
    "w": lambda got: got.isalnum() or got == "_",
    "s": str.isspace,
}


def _between(low: str, high: str) -> Test:
    return lambda got: low <= got <= high


_SPECIAL = frozenset(".^$*+?{}[]\\|()")


def escaped(text: str) -> str:
    """Return a pattern that matches `text` literally."""
    return "".join("\\" + char if char in _SPECIAL else char for char in text)


def glob_pattern(glob: str, *, is_name: bool) -> Pattern:
    """Return the pattern for `*` and `?`; for names, further labels may follow (`web*` finds web1.example)."""
    parts = [{"*": ".*", "?": "."}.get(char) or escaped(char) for char in glob]
    return Pattern("".join(parts) + (r"(\..*)?" if is_name else ""))
