"""A problem: the values of a regime in a shape, rounded to the dtype under test."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from implementations.contract import Dtype
from oracles.stream import Stream
from parity.precision import dtype_of, round_to
from parity.regimes import EXACT, REGIMES
from parity.shapes import Shape


@dataclass(frozen=True)
class Problem:
    """`seed` 0 is the gate's; any other gives fresh values of the same regime."""

    regime: str
    shape: Shape
    dtype: Dtype
    seed: int = 0

    @property
    def name(self) -> str:
        """What the values are a function of (they are then rounded to the dtype)."""
        return f"{self.regime}-{self.shape.name}" + (f"-seed{self.seed}" if self.seed else "")

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
