"""How many collectives of a compiled program wait for one another: the longest chain, in the optimised HLO."""

import re
from collections.abc import Callable

from parity.compiled.collectives import KINDS
from parity.compiled.hlo import UnreadableProgram, called, entry, lines, trips

_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>.*)")
_COLLECTIVE = re.compile(rf"[ )}}](?:{'|'.join(KINDS)})(?:-start)?\(")
_NAMES = re.compile(r"%([\w.\-]+)")


def depth(program: str) -> int:
    """0 where nothing is exchanged. What is in a loop counts as often as it runs.

    Raises UnreadableProgram where there is no module, or where a loop that exchanges something does not say how often.
    """
    of_computation: dict[str, list[str]] = {}
    for computation, line in lines(program):
        of_computation.setdefault(computation, []).append(line)
    known: dict[str, int] = {}

    def longest(computation: str) -> int:
        if computation not in known:
            known[computation] = _longest(of_computation.get(computation, []), longest)
        return known[computation]

    return longest(entry(program))


def _longest(body: list[str], longest: Callable[[str], int]) -> int:
    """Instructions stand behind their operands."""
    reached: dict[str, int] = {}
    for line in body:
        instruction = _INSTRUCTION.match(line.split(", metadata=")[0])
        if not instruction:
            continue
        rest = instruction["rest"]
        before = max((reached.get(name, 0) for name in _NAMES.findall(rest)), default=0)
        inside = max(map(longest, called(line)), default=0)
        if inside and " while(" in rest:
            runs = trips(line)
            if runs is None:
                raise UnreadableProgram(f"how often this exchanges is not said: {line.strip()[:160]}")
            inside *= runs
        reached[instruction["name"]] = before + inside + bool(_COLLECTIVE.search(rest))
    return max(reached.values(), default=0)
