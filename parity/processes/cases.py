"""What is run on several processes: every scheme, exchange and dtype, over layouts that cross the processes."""

from collections.abc import Iterator

import implementations
from implementations.context_parallel.pieces import zigzag
from parity.layouts import BESIDE_DATA, MINOR_FIRST, Layout, over
from parity.matrix import Case
from parity.precision import DTYPES
from parity.problem import Problem
from parity.shapes import ALIGNED, RAGGED

ZIGZAG_8 = Layout("zigzag8", (("context", 8),), ("context",), piece_order=zigzag(8))


def _cases() -> Iterator[Case]:
    over_ranks = [x for x in (*implementations.ALL, *implementations.VARIANTS) if x.context_parallel]
    for implementation in over_ranks:
        yield Case(implementation, Problem("long_memory", RAGGED, "f64"), over(8))
    two_phase, three_phase, *variants = over_ranks
    for dtype in DTYPES[1:]:
        yield Case(three_phase, Problem("long_memory", RAGGED, dtype), over(8))
    yield Case(two_phase, Problem("mixed_gates", RAGGED, "f64"), MINOR_FIRST)
    yield Case(three_phase, Problem("mixed_gates", RAGGED, "f64"), BESIDE_DATA)
    for implementation in variants:
        if implementation.name.endswith(("log_depth", "ring")):
            yield Case(implementation, Problem("mixed_gates", RAGGED, "f64"), MINOR_FIRST)
        if implementation.load_balanced:
            yield Case(implementation, Problem("long_memory", ALIGNED, "f64"), ZIGZAG_8)


CASES = tuple(_cases())
