r"""Regular expressions whose cost is bounded: what one matches is found in (length of pattern × length of value) steps.

Python's own backtrack, and a pattern such as `(a+)+b` keeps them busy for ever: in a manager that would be a way for one user
to stop all others. Here a pattern becomes an automaton whose states are followed all at once (Thompson's construction).

The language: `.`, `[a-z]`, `[^a-z]`, `\d`, `\w`, `\s` and their opposites `\D`, `\W`, `\S`, `\` before any other sign for the
sign itself, `(…)`, `|`, `*`, `+`, `?`. A pattern matches whole values and without regard to case; `^` at its beginning and
`$` at its end may be written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from beeyard.core.errors import InvalidSpec

CHARACTERS_MAX = 256
# What is longer matches nothing: names and labels that people tell nodes apart by are far shorter.
VALUE_CHARACTERS_MAX = 1024
DEPTH_MAX = 32

Test = Callable[[str], bool]

_CLASSES: dict[str, Test] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c.isalnum() or c == "_",
    "s": str.isspace,
}


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        """Raises InvalidSpec with the position of what is wrong."""
        self._parser = _Parser(text)
        self._start, self._end = self._parser.whole()
        self._tests, self._next = self._parser.tests, self._parser.next

    def matches(self, value: str) -> bool:
        """Whether the whole value is of this form."""
        if len(value) > VALUE_CHARACTERS_MAX:
            return False
        states = self._closure([self._start])
        for character in value:
            moved = []
            for state in states:
                test = self._tests[state]
                if test is not None and test(character):
                    moved += self._next[state]
            states = self._closure(moved)
            if not states:
                return False
        return self._end in states

    def _closure(self, states: list[int]) -> list[int]:
        """All states that are reached from these without a character."""
        seen = dict.fromkeys(states)
        waiting = list(seen)
        while waiting:
            state = waiting.pop()
            if self._tests[state] is None:
                for following in self._next[state]:
                    if following not in seen:
                        seen[following] = None
                        waiting.append(following)
        return list(seen)


@functools.lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """The pattern for a text. Raises InvalidSpec with the position of what is wrong."""
    return Pattern(text)


class _Parser:
    """Builds the automaton: state i goes on to `next[i]`, when `tests[i]` accepts a character or, being None, without one."""

    def __init__(self, text: str) -> None:
        self._all = text
        if len(text) > CHARACTERS_MAX:
            raise InvalidSpec("pattern", f"it has {len(text)} characters, more than {CHARACTERS_MAX}")
        begin = text.startswith("^")
        end = text.endswith("$") and not text.endswith("\\$")
        self._text = text[: len(text) - end]
        self._at = int(begin)
        self._depth = 0
        self.tests: list[Test | None] = []
        self.next: list[list[int]] = []

    def whole(self) -> tuple[int, int]:
        """First and last state of the pattern."""
        part = self._either()
        if self._at < len(self._text):
            raise self._wrong("a ) has no (")
        return part

    def _either(self) -> tuple[int, int]:
        start, end = self._state(), self._state()
        while True:
            first, last = self._sequence()
            self.next[start].append(first)
            self.next[last].append(end)
            if not self._takes("|"):
                return start, end

    def _sequence(self) -> tuple[int, int]:
        start = end = self._state()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            first, last = self._repeated()
            self.next[end].append(first)
            end = last
        return start, end

    def _repeated(self) -> tuple[int, int]:
        first, last = self._one()
        sign = self._text[self._at : self._at + 1]
        if sign not in ("*", "+", "?"):
            return first, last
        self._at += 1
        if self._text[self._at : self._at + 1] in ("*", "+", "?"):
            raise self._wrong(f"{self._text[self._at]} repeats nothing")
        start, end = self._state(), self._state()
        self.next[start].append(first)
        self.next[last].append(end)
        if sign != "+":
            self.next[start].append(end)
        if sign != "?":
            self.next[last].append(first)
        return start, end

    def _one(self) -> tuple[int, int]:
        sign = self._take()
        if sign == "(":
            return self._group()
        if sign in "*+?":
            self._at -= 1
            raise self._wrong(f"{sign} repeats nothing")
        if sign in "^$":
            self._at -= 1
            raise self._wrong(f"{sign} is neither at the beginning nor at the end: write \\{sign} for the sign itself")
        if sign == ".":
            return self._character(lambda c: True)
        if sign == "[":
            return self._character(self._set())
        return self._character(self._escaped() if sign == "\\" else _same(sign))

    def _group(self) -> tuple[int, int]:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(f"parentheses are nested deeper than {DEPTH_MAX}")
        if self._takes("?"):
            raise self._wrong("(? is not part of this language")
        part = self._either()
        if not self._takes(")"):
            raise self._wrong("a ( has no )")
        self._depth -= 1
        return part

    def _escaped(self) -> Test:
        if self._at == len(self._text):
            raise self._wrong("a \\ is the last sign")
        sign = self._take()
        if sign.lower() in _CLASSES:
            test = _CLASSES[sign.lower()]
            return test if sign.islower() else lambda c: not test(c)
        if sign.isalnum():
            raise self._wrong(f"\\{sign} is not part of this language")
        return _same(sign)

    def _set(self) -> Test:
        """What is between [ and ]."""
        negated, tests = self._takes("^"), []
        while not self._takes("]"):
            if self._at == len(self._text):
                raise self._wrong("a [ has no ]")
            sign = self._take()
            if sign == "\\":
                tests.append(self._escaped())
            elif self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] not in (
                "",
                "]",
            ):
                self._at += 1
                last = self._take()
                if last < sign or last == "\\":
                    raise self._wrong(f"{sign}-{last} is no range")
                tests.append(_between(sign, last))
            else:
                tests.append(_same(sign))
        if not tests:
            raise self._wrong("[] holds nothing")
        return lambda c: any(test(c) for test in tests) is not negated

    def _character(self, test: Test) -> tuple[int, int]:
        state, after = self._state(test), self._state()
        self.next[state].append(after)
        return state, after

    def _state(self, test: Test | None = None) -> int:
        self.tests.append(test)
        self.next.append([])
        return len(self.tests) - 1

    def _take(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, sign: str) -> bool:
        found = self._text[self._at : self._at + 1] == sign
        self._at += found
        return found

    def _wrong(self, what: str) -> InvalidSpec:
        return InvalidSpec("pattern", f"{self._all!r}, character {self._at + 1}: {what}")


def _same(sign: str) -> Test:
    folded = sign.casefold()
    return lambda c: c.casefold() == folded


def _between(first: str, last: str) -> Test:
    return lambda c: first <= c <= last or first <= c.lower() <= last or first <= c.upper() <= last


__all__ = ["CHARACTERS_MAX", "VALUE_CHARACTERS_MAX", "Pattern", "compile_pattern"]
