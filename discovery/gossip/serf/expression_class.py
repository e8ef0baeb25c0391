"""Characters and classes of them in Go's regular expressions: `[a-z]`, `\\d`, `[[:alpha:]]`, `\\x41`."""

from __future__ import annotations

import string
from collections.abc import Callable

from beeyard.core.errors import InvalidSpec

CharTest = Callable[[str], bool]


def _one_of(chars: str) -> CharTest:
    return frozenset(chars).__contains__


def _none_of(chars: str) -> CharTest:
    excluded = frozenset(chars)
    return lambda char: char not in excluded


_WORD = string.ascii_letters + string.digits + "_"
_SPACE = "\t\n\f\r "  # without \v, as in RE2

PERL: dict[str, CharTest] = {
    "d": _one_of(string.digits),
    "D": _none_of(string.digits),
    "w": _one_of(_WORD),
    "W": _none_of(_WORD),
    "s": _one_of(_SPACE),
    "S": _none_of(_SPACE),
}
POSIX: dict[str, str] = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(map(chr, range(128))),
    "blank": "\t ",
    "cntrl": "".join(map(chr, [*range(32), 127])),
    "digit": string.digits,
    "graph": "".join(map(chr, range(33, 127))),
    "lower": string.ascii_lowercase,
    "print": "".join(map(chr, range(32, 127))),
    "punct": string.punctuation,
    "space": _SPACE + "\v",
    "upper": string.ascii_uppercase,
    "word": _WORD,
    "xdigit": string.hexdigits,
}
_CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


class Scanner:
    """A place in an expression."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self.position = 0

    @property
    def at_end(self) -> bool:
        return self.position >= len(self._expression)

    @property
    def next(self) -> str:
        """The character that comes, without taking it. Not at the end."""
        return self._expression[self.position]

    def char(self) -> str:
        """Take one character."""
        if self.at_end:
            raise self.wrong("ends too early")
        self.position += 1
        return self._expression[self.position - 1]

    def take(self, prefix: str) -> bool:
        """Take this if it comes."""
        if self._expression.startswith(prefix, self.position):
            self.position += len(prefix)
            return True
        return False

    def until(self, end: str, *, required: bool = False) -> str:
        """Take what comes before `end`, and `end`; everything if it does not come."""
        found = self._expression.find(end, self.position)
        if found == -1:
            if required:
                raise self.wrong(f"missing {end}")
            found = len(self._expression)
        text = self._expression[self.position : found]
        self.position = found + len(end)
        return text

    def repeat(self) -> tuple[int, int, int] | None:
        """`{n}`, `{n,}` or `{n,m}` if one comes: least, most (-1: any number), and the position after it. Takes nothing."""
        if self.at_end or self.next != "{":
            return None
        end = self._expression.find("}", self.position, self.position + 12)
        if end == -1:
            return None
        least, comma, most = self._expression[self.position + 1 : end].partition(",")
        if not (_is_number(least) and (_is_number(most) or most == "")):
            return None
        return int(least), int(most) if most else -1 if comma else int(least), end + 1

    def wrong(self, reason: str) -> InvalidSpec:
        """The error to raise."""
        return InvalidSpec("expression", f"{reason} at {self.position} of {self._expression!r}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def folded(test: CharTest, fold: bool) -> CharTest:
    """The test, passed by a character of the other case too if `fold`."""
    if not fold:
        return test
    return lambda char: test(char) or test(char.lower()) or test(char.upper())


def parse_escape(scanner: Scanner) -> str | CharTest:
    """What comes after a backslash: a character, or a class of them."""
    char = scanner.char()
    if char in PERL:
        return PERL[char]
    if char in _CONTROL:
        return _CONTROL[char]
    if char == "x":
        return _code(
            scanner, scanner.until("}", required=True) if scanner.take("{") else scanner.char() + scanner.char(), 16
        )
    if char in "01234567":
        digits = char
        while len(digits) < 3 and not scanner.at_end and scanner.next in "01234567":
            digits += scanner.char()
        if digits == char != "0":
            raise scanner.wrong("invalid escape sequence")  # would be a back reference
        return _code(scanner, digits, 8)
    if char.isascii() and char.isalnum():
        raise scanner.wrong("invalid escape sequence")
    return char


def _code(scanner: Scanner, digits: str, base: int) -> str:
    if not digits or len(digits) > 6 or any(digit not in string.hexdigits for digit in digits):
        raise scanner.wrong("invalid escape sequence")
    code = int(digits, base)
    if code > 0x10FFFF:
        raise scanner.wrong("invalid escape sequence")
    return chr(code)


def parse_class(scanner: Scanner) -> CharTest:
    """What comes after `[`, up to and with `]`."""
    negated = scanner.take("^")
    singles: set[str] = set()
    ranges: list[tuple[str, str]] = []
    tests: list[CharTest] = []
    first = True
    while first or not scanner.take("]"):
        first = False
        if scanner.take("[:"):
            tests.append(_posix(scanner, scanner.until(":]", required=True)))
            continue
        low = _class_char(scanner)
        if not isinstance(low, str):
            tests.append(low)
            continue
        start = scanner.position
        if scanner.take("-") and not scanner.at_end and scanner.next != "]":
            high = _class_char(scanner)
            if not isinstance(high, str) or high < low:
                raise scanner.wrong("invalid character class range")
            ranges.append((low, high))
        else:
            scanner.position = start
            singles.add(low)

    def test(char: str) -> bool:
        inside = char in singles or any(low <= char <= high for low, high in ranges) or any(one(char) for one in tests)
        return inside != negated

    return test


def _class_char(scanner: Scanner) -> str | CharTest:
    char = scanner.char()
    return parse_escape(scanner) if char == "\\" else char


def _posix(scanner: Scanner, name: str) -> CharTest:
    negated = name.startswith("^")
    chars = POSIX.get(name.removeprefix("^"))
    if chars is None:
        raise scanner.wrong("invalid character class")
    return _none_of(chars) if negated else _one_of(chars)


__all__ = ["PERL", "CharTest", "Scanner", "folded", "parse_class", "parse_escape"]
