"""The FLOPs of a compiled program, read from its optimised HLO, every loop as often as it runs.

`cost_analysis()` counts the body of a loop once, whatever its trip count; here it is multiplied by it. The optimised
text is read, and not what was traced, for that is what runs: what nobody uses is gone, and what is used twice is there
once. Matrix products are counted (2 a multiply-add), and triangular solves (n^2 a right-hand side, as LAPACK counts
them). Elementwise work is not, and a product that the compiler made elementwise is refused.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from parity.compiled.hlo import UnreadableProgram, called, entry, lines, trips

Branches = Callable[[Iterable["Flops"]], "Flops"]

_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<result>.*?) (?P<opcode>[a-z][\w\-]*)\((?P<rest>.*)$"
)
_SHAPE = re.compile(r"\w+\[([\d,]*)\]")
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_WAS_A_PRODUCT = re.compile(r'op_name="[^"]*dot_general"')
_SOLVE = re.compile(r'custom_call_target="lapack_[sd]trsm(?:_ffi)?"')

_RUN_ITS_COMPUTATION_ONCE = ("call", "fusion", "async-start")
_PRODUCTS_OF_OTHER_KINDS = ("convolution", "ragged-dot", "scaled-dot", "triangular-solve", "cholesky", "fft")


@dataclass(frozen=True, order=True)
class Flops:
    """`dots`: of matrix products; `solves`: of triangular solves."""

    dots: int = 0
    solves: int = 0

    @property
    def total(self) -> int:
        return self.dots + self.solves

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.dots + other.dots, self.solves + other.solves)

    def times(self, trips: int) -> "Flops":
        return Flops(trips * self.dots, trips * self.solves)


def dearest(branches: Iterable[Flops]) -> Flops:
    """What a conditional may cost at most."""
    return max(branches, key=lambda flops: flops.total)


def cheapest(branches: Iterable[Flops]) -> Flops:
    """What a conditional costs at least."""
    return min(branches, key=lambda flops: flops.total)


def flops(program: str, *, of_branches: Branches = dearest) -> Flops:
    """Of one device that runs `program`, an optimised HLO module: `jax.jit(f).lower(...).compile().as_text()`.

    `of_branches` says what a conditional costs, given its branches. Raises UnreadableProgram where a loop does not say
    how often it runs, where a product is not a dot any more, and where a call is to something unknown.
    """
    computations: dict[str, list[str]] = {}
    for computation, line in lines(program):
        computations.setdefault(computation, []).append(line)
    found: dict[str, Flops] = {}

    def of(computation: str) -> Flops:
        if computation not in found:
            if computation not in computations:
                raise UnreadableProgram(f"{computation} is called, and not there")
            found[computation] = _of_lines(computations[computation], of, of_branches)
        return found[computation]

    return of(entry(program))


def _of_lines(body: list[str], of: Callable[[str], Flops], of_branches: Branches) -> Flops:
    total, shapes = Flops(), {}
    for line in body:
        instruction = _INSTRUCTION.match(line)
        if instruction is None:
            if " = " in line:
                raise UnreadableProgram(f"an instruction that is not understood: {line.strip()[:160]}")
            continue
        shapes[instruction["name"]] = instruction["result"]
        total += _own(instruction, line, shapes) + _of_called(instruction["opcode"], line, of, of_branches)
    return total


def _own(instruction: re.Match[str], line: str, shapes: dict[str, str]) -> Flops:
    """What an instruction costs without the computations that it calls."""
    opcode, operands = instruction["opcode"], _operands(instruction["rest"])
    if opcode == "dot":
        contracting = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", line)
        lhs = _sizes(shapes.get(operands[0], ""), line)
        contracted = [lhs[int(axis)] for axis in contracting[1].split(",") if axis] if contracting else []
        return Flops(dots=2 * math.prod(_sizes(instruction["result"], line)) * math.prod(contracted))
    if opcode == "custom-call":
        if not _SOLVE.search(line):
            raise UnreadableProgram(f"a call of something whose cost is not known: {line.strip()[:160]}")
        n = _sizes(shapes.get(operands[0], ""), line)[-1]
        return Flops(solves=n * math.prod(_sizes(instruction["result"], line)))
    if opcode in _PRODUCTS_OF_OTHER_KINDS:
        raise UnreadableProgram(f"a {opcode} is not counted: {line.strip()[:160]}")
    if opcode in ("multiply", "reduce") and _WAS_A_PRODUCT.search(line):
        raise UnreadableProgram(f"a matrix product that was made elementwise is not counted: {line.strip()[:160]}")
    return Flops()


def _of_called(opcode: str, line: str, of: Callable[[str], Flops], of_branches: Branches) -> Flops:
    """What the computations cost that an instruction runs, as often as it does."""
    costs = [of(name) for name in called(line)]
    if opcode == "conditional":
        return of_branches(costs)
    total = sum(costs, Flops())
    if total == Flops() or opcode in _RUN_ITS_COMPUTATION_ONCE:
        return total
    runs, condition = trips(line), _CONDITION.search(line)
    if opcode == "while" and runs is not None and condition:
        return total.times(runs) + of(condition[1])  # which is asked once more, to end the loop
    raise UnreadableProgram(f"how often this runs is not said: {line.strip()[:160]}")


def _operands(rest: str) -> list[str]:
    """The names of the operands, from what follows the opening bracket."""
    return [operand.split()[-1].lstrip("%") for operand in rest.partition(")")[0].split(", ") if operand]


def _sizes(result: str, line: str) -> tuple[int, ...]:
    shape = _SHAPE.match(result)
    if shape is None:
        raise UnreadableProgram(f"an array whose shape is not known: {line.strip()[:160]}")
    return tuple(int(n) for n in shape[1].split(",") if n)
