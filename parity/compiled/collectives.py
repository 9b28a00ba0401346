"""The collectives of a compiled program, read from its optimised HLO: what each one carries, and between whom."""

import math
import re
from dataclasses import dataclass

from parity.compiled.hlo import UnreadableProgram, called, lines

KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "collective-permute",
    "all-to-all",
    "collective-broadcast",
    "ragged-all-to-all",
)

_BITS = {"pred": 8, "bf16": 16} | {f"{kind}{bits}": bits for kind in "suf" for bits in (8, 16, 32, 64)}
_INSTRUCTION = re.compile(rf"= (?P<result>.*?) (?P<kind>{'|'.join(KINDS)})(?:-start)?\((?P<rest>.*)")
_ARRAY = re.compile(r"\b(\w+)\[([\d,]*)\]")


@dataclass(frozen=True)
class Collective:
    """`shapes`: of what each device holds after it, one a result. `links`: how many devices are sent something by a
    permutation, how many take part in another kind. `in_loop`: it may run any number of times.
    """

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    itemsize: int
    links: int
    in_loop: bool

    @property
    def elements(self) -> int:
        """That each device holds after it."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def received(self) -> int:
        """Elements that arrive at devices from others, over all devices; of a reduction, those of a ring (each element
        of the operand but a device's own share arrives once).
        """
        match self.kind:
            case "collective-permute":
                return self.links * self.elements
            case "all-gather":
                return (self.links - 1) * self.elements
            case "reduce-scatter":
                return self.links * (self.links - 1) * self.elements
            case "all-reduce":
                return 2 * (self.links - 1) * self.elements
            case _:
                return (self.links - 1) * self.elements


def collectives(program: str) -> list[Collective]:
    """All collectives of an optimised HLO module, `jax.jit(f).lower(...).compile().as_text()`, in its order.

    Raises UnreadableProgram where there is no module, or where one of them is not understood.
    """
    looping = _run_by_loops(program)
    found = []
    for computation, line in lines(program):
        instruction = _INSTRUCTION.search(line)
        if instruction:
            found.append(_read(instruction, line, computation in looping))
        elif re.search(rf"\b(?:{'|'.join(KINDS)})(?:-start)?\(", line.split(", metadata=")[0]):
            raise UnreadableProgram(f"a collective that is not understood: {line.strip()[:160]}")
    return found


def _read(instruction: re.Match[str], line: str, in_loop: bool) -> Collective:
    arrays = _ARRAY.findall(instruction["result"])
    if f"{instruction['kind']}-start(" in line and instruction["kind"] != "all-reduce":
        arrays = [array for array in arrays if array != ("u32", "")]  # the context of a permutation
        arrays = arrays[len(arrays) // 2 :]  # the operands stand before the results
    arrays = [(dtype, sizes) for dtype, sizes in arrays if dtype in _BITS]
    dtypes = {dtype for dtype, _ in arrays}
    if len(dtypes) != 1:
        raise UnreadableProgram(f"a collective of {', '.join(sorted(dtypes)) or 'no array'}: {line.strip()[:160]}")
    shapes = tuple(tuple(int(n) for n in sizes.split(",") if n) for _, sizes in arrays)
    return Collective(
        instruction["kind"], shapes, _BITS[dtypes.pop()] // 8, _links(instruction["kind"], instruction["rest"]), in_loop
    )


def _links(kind: str, attributes: str) -> int:
    if kind == "collective-permute":
        pairs = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", attributes)
        if pairs:
            return len([1 for source, target in re.findall(r"\{(\d+),(\d+)\}", pairs[1]) if source != target])
    group = re.search(r"replica_groups=\{\{([\d,]+)\}", attributes)
    if group:
        return len(group[1].split(","))
    iota = re.search(r"replica_groups=\[\d+,(\d+)\]<=", attributes)  # [groups, members of each]
    if iota:
        return int(iota[1])
    # Where the devices are not in their own order it is said between the two, and how many take part stays what it is.
    mesh = re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\([^{}]*\))?\s*\{([^}]*)\}", attributes)
    if mesh:
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", mesh[1]))
        axes = [axis.strip().strip("'") for axis in mesh[2].split(",")]
        if set(axes) <= sizes.keys():  # and not a part of an axis
            return math.prod(int(sizes[axis]) for axis in axes)
    raise UnreadableProgram(f"between whom a {kind} is cannot be read: {attributes[:160]}")


def _run_by_loops(program: str) -> set[str]:
    """The computations that a `while` runs, and those that these call."""
    calls: dict[str, set[str]] = {}
    looping: set[str] = set()
    for computation, line in lines(program):
        calls.setdefault(computation, set()).update(called(line))
        if " while(" in line:
            looping |= set(called(line))
    waiting = list(looping)
    while waiting:
        new = calls.get(waiting.pop(), set()) - looping
        looping |= new
        waiting += new
    return looping
