"""The collectives of a compiled program, read from its optimised HLO: what each one carries, and between whom."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from parity.compiled.hlo import UnreadableProgram, called, entry, lines, trips

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
    permutation, how many take part in a group of another kind. `groups`: that do it among themselves. `times`: how
    often it runs; None where a loop around it does not say.
    """

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    itemsize: int
    links: int
    groups: int = 1
    times: int | None = 1

    @property
    def elements(self) -> int:
        """That each device holds after it has run once."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def received(self) -> int:
        """Elements that arrive at devices from others, over all devices and runs; of a reduction, those of a ring (each
        element of the operand but a device's own share arrives once). Raises UnreadableProgram where `times` is None.
        """
        if self.times is None:
            raise UnreadableProgram(f"how often this is exchanged is not said: {self.kind} of {self.shapes}")
        return self.times * self.groups * self._of_a_group()

    def _of_a_group(self) -> int:
        match self.kind:
            case "collective-permute":
                return self.links * self.elements
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
    times = _times(program)
    found = []
    for computation, line in lines(program):
        instruction = _INSTRUCTION.search(line)
        if instruction:
            found.append(_read(instruction, line, times(computation)))
        elif re.search(rf"\b(?:{'|'.join(KINDS)})(?:-start)?\(", line.split(", metadata=")[0]):
            raise UnreadableProgram(f"a collective that is not understood: {line.strip()[:160]}")
    return found


def _read(instruction: re.Match[str], line: str, times: int | None) -> Collective:
    arrays = _ARRAY.findall(instruction["result"])
    if f"{instruction['kind']}-start(" in line and instruction["kind"] != "all-reduce":
        arrays = [array for array in arrays if array != ("u32", "")]  # the context of a permutation
        arrays = arrays[len(arrays) // 2 :]  # the operands stand before the results
    arrays = [(dtype, sizes) for dtype, sizes in arrays if dtype in _BITS]
    dtypes = {dtype for dtype, _ in arrays}
    if len(dtypes) != 1:
        raise UnreadableProgram(f"a collective of {', '.join(sorted(dtypes)) or 'no array'}: {line.strip()[:160]}")
    shapes = tuple(tuple(int(n) for n in sizes.split(",") if n) for _, sizes in arrays)
    links, groups = _between(instruction["kind"], instruction["rest"])
    return Collective(instruction["kind"], shapes, _BITS[dtypes.pop()] // 8, links, groups, times)


def _between(kind: str, attributes: str) -> tuple[int, int]:
    """`(links, groups)`."""
    if kind == "collective-permute":
        pairs = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", attributes)
        if pairs:
            sent = [1 for source, target in re.findall(r"\{(\d+),(\d+)\}", pairs[1]) if source != target]
            return len(sent), 1
    listed = re.search(r"replica_groups=\{(\{[\d,]+\}(?:,\{[\d,]+\})*)\}", attributes)
    if listed:
        sizes = {len(group.split(",")) for group in re.findall(r"\{([\d,]+)\}", listed[1])}
        if len(sizes) == 1:
            return sizes.pop(), listed[1].count("{")
    iota = re.search(r"replica_groups=\[(\d+),(\d+)\]<=", attributes)  # [groups, members of each]
    if iota:
        return int(iota[2]), int(iota[1])
    # Where the devices are not in their own order it is said between the two, and how many take part stays what it is.
    mesh = re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\([^{}]*\))?\s*\{([^}]*)\}", attributes)
    if mesh:
        of_axes = {axis: int(size) for axis, size in re.findall(r"'([^']+)'=(\d+)", mesh[1])}
        axes = [axis.strip().strip("'") for axis in mesh[2].split(",")]
        if set(axes) <= of_axes.keys():  # and not a part of an axis
            members = math.prod(of_axes[axis] for axis in axes)
            return members, math.prod(of_axes.values()) // members
    raise UnreadableProgram(f"between whom a {kind} is cannot be read: {attributes[:160]}")


def _times(program: str) -> Callable[[str], int | None]:
    """How often a computation is run; of the branches of a conditional, each as if it were the one that is taken."""
    callers: dict[str, list[tuple[str, int | None]]] = {}
    for computation, line in lines(program):
        for name in called(line):
            callers.setdefault(name, []).append((computation, trips(line) if " while(" in line else 1))
    first = entry(program)

    @cache
    def times(computation: str) -> int | None:
        total = int(computation == first)
        for caller, runs in callers.get(computation, ()):
            of_caller = times(caller)
            if of_caller is None or (runs is None and of_caller):
                return None
            total += of_caller * (runs or 0)
        return total

    return times
