"""Go's syntax of regular expressions, compiled into a small program for `expression`.

A program is a list of instructions: `(CHAR, test)` eats a character that passes, `(SPLIT, targets)` goes on at each target,
`(AT, sign)` goes on if the position is what the sign says, `(MATCH, None)` is the end. While it is built, targets are
relative, so that pieces can be put side by side.
"""

from __future__ import annotations

from collections.abc import Callable

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.gossip.serf.expression_class import PERL, CharTest, Scanner, folded, parse_class, parse_escape

CHAR, SPLIT, AT, MATCH = range(4)
Instruction = tuple[int, CharTest | tuple[int, ...] | str | None]
Program = list[Instruction]

EXPRESSION_CHARS_MAX = 1024  # more than a query holds
PROGRAM_MAX = 2000  # instructions
REPEAT_MAX = 1000  # Source: Go's regexp/syntax
DEPTH_MAX = 50  # groups within groups


def _is_word(text: str, position: int) -> bool:
    return 0 <= position < len(text) and PERL["w"](text[position])


def _at_border(text: str, position: int) -> bool:
    return _is_word(text, position - 1) != _is_word(text, position)


AT_SIGNS: dict[str, Callable[[str, int], bool]] = {
    "A": lambda text, position: position == 0,
    "z": lambda text, position: position == len(text),
    "^": lambda text, position: position == 0 or text[position - 1] == "\n",
    "$": lambda text, position: position == len(text) or text[position] == "\n",
    "b": _at_border,
    "B": lambda text, position: not _at_border(text, position),
}


def compile_program(expression: str) -> Program:
    """
    Raises:
        InvalidSpec: the expression cannot be understood, or is too large.
    """
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise InvalidSpec("expression", f"has at most {EXPRESSION_CHARS_MAX} characters, not {len(expression)}")
    scanner = Scanner(expression)
    piece = _Parser(scanner).alternatives(frozenset(), 0)
    if not scanner.at_end:
        raise scanner.wrong("unexpected )")
    absolute: Program = []
    for pc, (op, argument) in enumerate([*piece, (MATCH, None)]):
        if op == SPLIT:
            assert isinstance(argument, tuple)
            argument = tuple(pc + distance for distance in argument)
        absolute.append((op, argument))
    return absolute


class _Parser:
    """Recursive descent; `flags` are those of (?ims) that hold at this place."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner

    def alternatives(self, flags: frozenset[str], depth: int) -> Program:
        """What stands between `|`, up to the end or a closing parenthesis."""
        if depth > DEPTH_MAX:
            raise self._scanner.wrong("too deep")
        piece, flags = self._sequence(flags, depth)
        while self._scanner.take("|"):
            other, flags = self._sequence(flags, depth)
            piece = self._limited([(SPLIT, (1, len(piece) + 2)), *piece, (SPLIT, (len(other) + 1,)), *other])
        return piece

    def _sequence(self, flags: frozenset[str], depth: int) -> tuple[Program, frozenset[str]]:
        scanner = self._scanner
        pieces: Program = []
        while not scanner.at_end and scanner.next not in "|)":
            if scanner.take("\\Q"):
                quoted: Program = [(CHAR, _literal(char, flags)) for char in scanner.until("\\E")]
                # A repetition after \\E is of the last character alone.
                pieces += quoted[:-1] + (self._repeated(quoted[-1:]) if quoted else [])
                continue
            if scanner.next in "*+?" or scanner.repeat() is not None:
                raise scanner.wrong("missing argument to repetition")
            if (changed := self._flags_alone(flags)) is not None:
                flags = changed
                continue
            pieces += self._repeated(self._atom(flags, depth))
            self._limited(pieces)
        return self._limited(pieces), flags

    def _flags_alone(self, flags: frozenset[str]) -> frozenset[str] | None:
        """`(?i)`: what holds from here to the end of the group; None: something else comes."""
        scanner = self._scanner
        start = scanner.position
        if scanner.take("(?") and not scanner.at_end and scanner.next not in "P<:":
            changed = self._flag_letters(flags)
            if scanner.take(")"):
                return changed
        scanner.position = start
        return None

    def _flag_letters(self, flags: frozenset[str]) -> frozenset[str]:
        scanner = self._scanner
        adding = True
        while not scanner.at_end and scanner.next not in ":)":
            char = scanner.char()
            if char == "-" and adding:
                adding = False
            elif char in "imsU":
                flags = flags | {char} if adding else flags - {char}
            else:
                raise scanner.wrong("unknown flag")
        return flags

    def _atom(self, flags: frozenset[str], depth: int) -> Program:
        scanner = self._scanner
        char = scanner.char()
        if char == "(":
            return self._group(flags, depth)
        if char == "[":
            return [(CHAR, folded(parse_class(scanner), "i" in flags))]
        if char == ".":
            return [(CHAR, (lambda c: True) if "s" in flags else (lambda c: c != "\n"))]
        if char == "^":
            return [(AT, "^" if "m" in flags else "A")]
        if char == "$":
            return [(AT, "$" if "m" in flags else "z")]
        if char == "\\":
            if not scanner.at_end and scanner.next in "AzbB":
                return [(AT, scanner.char())]
            found = parse_escape(scanner)
            return [(CHAR, _literal(found, flags) if isinstance(found, str) else found)]
        return [(CHAR, _literal(char, flags))]

    def _group(self, flags: frozenset[str], depth: int) -> Program:
        scanner = self._scanner
        if scanner.take("?P<") or scanner.take("?<"):
            name = scanner.until(">", required=True)
            if not name.isidentifier() or not name.isascii():
                raise scanner.wrong("bad name of a group")
        elif scanner.take("?"):
            flags = self._flag_letters(flags)
            if not scanner.take(":"):
                raise scanner.wrong("unknown kind of group")
        piece = self.alternatives(flags, depth + 1)
        if not scanner.take(")"):
            raise scanner.wrong("missing )")
        return piece

    def _repeated(self, piece: Program) -> Program:
        scanner = self._scanner
        if scanner.at_end:
            return piece
        if scanner.take("*"):
            least, most = 0, -1
        elif scanner.take("+"):
            least, most = 1, -1
        elif scanner.take("?"):
            least, most = 0, 1
        elif (bounds := scanner.repeat()) is not None:
            least, most, scanner.position = bounds
            if least > REPEAT_MAX or most > REPEAT_MAX or (most != -1 and least > most):
                raise scanner.wrong("invalid repeat count")
        else:
            return piece
        scanner.take("?")  # lazy
        if not scanner.at_end and (scanner.next in "*+?" or scanner.repeat() is not None):
            raise scanner.wrong("invalid nested repetition operator")
        return self._repeat(piece, least, most)

    def _repeat(self, piece: Program, least: int, most: int) -> Program:
        n_copies = max(least, most, 1)
        if n_copies * (len(piece) + 1) > PROGRAM_MAX:
            raise self._scanner.wrong("expression too large")
        required = piece * least
        if most == -1:
            back = len(piece) + 1
            return [*required, (SPLIT, (1, back + 1)), *piece, (SPLIT, (-back,))]
        # Each further copy may be left out, and with it all that follow.
        n_optional = most - least
        optional: Program = []
        for index in range(n_optional):
            optional.append((SPLIT, (1, (n_optional - index) * (len(piece) + 1))))
            optional += piece
        return required + optional

    def _limited(self, piece: Program) -> Program:
        if len(piece) > PROGRAM_MAX:
            raise self._scanner.wrong("expression too large")
        return piece


def _literal(char: str, flags: frozenset[str]) -> CharTest:
    if "i" in flags:
        return folded(char.__eq__, True)
    return char.__eq__


__all__ = ["AT", "AT_SIGNS", "CHAR", "MATCH", "SPLIT", "Instruction", "Program", "compile_program"]
