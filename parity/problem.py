"""A problem: the values of a regime in a shape, rounded to the dtype under test."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from implementations.contract import Dtype
from oracles.stream import Stream
from parity.packing import segment_ids
from parity.precision import dtype_of, round_to
from parity.regimes import EXACT, REGIMES
from parity.shapes import Shape


@dataclass(frozen=True)
class Problem:
    """`seed` 0 is the gate's; any other gives fresh values of the same regime. `packing`: how documents are packed into
    the rows, one of `parity.packing.PACKINGS`; where it is empty a row is one document.
    """

    regime: str
    shape: Shape
    dtype: Dtype
    seed: int = 0
    packing: str = ""

    @property
    def name(self) -> str:
        """What the values are a function of (they are then rounded to the dtype)."""
        packed = f"-packed_{self.packing}" if self.packing else ""
        return f"{self.regime}-{self.shape.name}{packed}" + (f"-seed{self.seed}" if self.seed else "")

    @property
    def segment_ids(self) -> np.ndarray | None:
        """`[B, T]`, or None where a row is one document."""
        return segment_ids(self.packing, self.shape) if self.packing else None

    @property
    def is_exact(self) -> bool:
        """Whether a correct implementation returns the rounded truth, bit for bit."""
        return self.regime in EXACT and self.shape.scale_is_a_power_of_two

    @property
    def arguments(self) -> dict[str, np.ndarray]:
        """The six inputs and both cotangents, in the dtypes under test; read-only."""
        return _arguments(self)


@lru_cache(maxsize=64)
def _arguments(problem: Problem) -> dict[str, np.ndarray]:
    values = REGIMES[problem.regime](Stream(f"problem/{problem.name}"), problem.shape)
    sizes = problem.shape.sizes()
    wrong = {name: x.shape for name, x in values.items() if x.shape != sizes[name]} or sizes.keys() ^ values.keys()
    if wrong:
        raise AssertionError(f"regime {problem.regime} made {wrong}, not {sizes}")
    rounded = {name: round_to(values[name], dtype_of(name, problem.dtype)) for name in sizes}
    for x in rounded.values():
        x.flags.writeable = False
    return rounded
