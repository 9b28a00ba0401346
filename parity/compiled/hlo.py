"""The text of a compiled program, `jax.jit(f).lower(...).compile().as_text()`: its computations, and who calls whom."""

import re
from collections.abc import Iterator

_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{$")
_CALLED = re.compile(r"(?:body|condition|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


class UnreadableProgram(ValueError):
    """Text that is not what this reader knows of HLO; nothing is proven by what cannot be read."""


def lines(program: str) -> list[tuple[str, str]]:
    """Every line of every computation, with that one's name.

    Raises UnreadableProgram where there is no module.
    """
    if not program.startswith("HloModule"):
        raise UnreadableProgram(f"the text of a compiled program begins with HloModule; got {program[:40]!r}")
    return list(_lines(program))


def entry(program: str) -> str:
    """The name of the computation that is run. Raises UnreadableProgram where none is."""
    heads = (_COMPUTATION.match(line) for line in program.splitlines())
    for head in heads:
        if head and head["entry"]:
            return head["name"]
    raise UnreadableProgram("no computation is the ENTRY of the program")


def called(line: str) -> list[str]:
    """The computations that an instruction calls; of a conditional, one for each branch."""
    names = _CALLED.findall(line)
    for branches in _BRANCHES.findall(line):
        names += [name.strip(" %") for name in branches.split(",")]
    return names


def trips(line: str) -> int | None:
    """How often a loop runs, where its instruction says so."""
    found = _TRIPS.search(line)
    return int(found[1]) if found else None


def _lines(program: str) -> Iterator[tuple[str, str]]:
    computation = ""
    for line in program.splitlines():
        head = _COMPUTATION.match(line)
        computation = head["name"] if head else computation
        if computation and not head:
            yield computation, line
