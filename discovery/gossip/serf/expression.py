"""Regular expressions that a peer sends, matched in time that grows with their length times the text's, never worse.

Queries carry filters in the syntax of Go's regexp. Python's `re` tries one way after the other, so that `(a*)*b` on thirty
letters takes minutes. Here all ways are followed side by side, as in Go; only whether there is a match is of interest, so
that groups capture nothing and lazy repetition is like greedy.

Source: R. Cox, "Regular expression matching can be simple and fast" (2007); https://github.com/google/re2/wiki/Syntax.
Left out: Unicode classes (`\\pL`) and `\\C`. An expression with one is refused, as one that Go cannot compile.
"""

from __future__ import annotations

from functools import lru_cache

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.gossip.serf.expression_syntax import AT_SIGNS, CHAR, MATCH, SPLIT, Program, compile_program

STEPS_MAX = 60_000  # some 20 ms; a tag has at most 512 characters, so this is enough for a hundred instructions on it


def matches(expression: str, text: str, *, steps_max: int = STEPS_MAX) -> bool:
    """Whether a part of the text matches.

    Raises:
        InvalidSpec: the expression cannot be understood, or it takes more than `steps_max` steps to find out.
    """
    n_steps = 0
    program = _compiled(expression)
    threads: list[int] = []
    for position in range(len(text) + 1):
        # A match may begin anywhere: a thread starts at each position.
        waiting, n_visited, is_through = _closure(program, [*threads, 0], text, position)
        if is_through:
            return True
        n_steps += n_visited
        if n_steps > steps_max:
            raise InvalidSpec("expression", f"takes too many steps on {len(text)} characters: {expression!r}")
        if position < len(text):
            threads = [pc + 1 for pc in waiting if program[pc][1](text[position])]  # type: ignore[misc, operator]
    return False


def check(expression: str) -> None:
    """
    Raises:
        InvalidSpec: the expression cannot be understood, or is too large.
    """
    _compiled(expression)


@lru_cache(maxsize=16)
def _compiled(expression: str) -> Program:
    return compile_program(expression)


def _closure(program: Program, threads: list[int], text: str, position: int) -> tuple[list[int], int, bool]:
    """All places in the program that wait for a character now, how many were visited, and whether it is through."""
    waiting: list[int] = []
    seen: set[int] = set()
    stack = threads
    while stack:
        pc = stack.pop()
        if pc in seen:
            continue
        seen.add(pc)
        op, argument = program[pc]
        if op == CHAR:
            waiting.append(pc)
        elif op == MATCH:
            return [], len(seen), True
        elif op == SPLIT:
            stack.extend(argument)  # type: ignore[arg-type]
        elif AT_SIGNS[argument](text, position):  # type: ignore[index]
            stack.append(pc + 1)
    return waiting, len(seen), False


__all__ = ["check", "matches"]
