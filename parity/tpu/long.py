"""A million tokens, and a quarter of that: the programs that the threads ran out of memory with, and those that fit."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from implementations.context_parallel.affine import fold
from implementations.context_parallel.least_memory import least_memory
from implementations.context_parallel.two_phase import two_phase
from implementations.contract import Implementation
from implementations.pallas.composition import PALLAS_FOLD, invert_f32
from implementations.pallas.scan import walk
from implementations.ut_inversion.ladder import ladder
from parity.compiled.other_folds import associative_fold, without_checkpoint
from parity.shapes import Shape
from parity.tpu.ahead import compile_call

CHIP = "v5p"

# The UT transform by the ladder: a triangular solve takes the compiler many times as long.
FORMS: Mapping[str, Callable[..., Any]] = {
    "associative scan": functools.partial(two_phase, invert=ladder, map_of_rank=associative_fold),
    "fold without checkpoint": functools.partial(two_phase, invert=ladder, map_of_rank=without_checkpoint(fold)),
    "fold": functools.partial(two_phase, invert=ladder),
    "pallas_fold": PALLAS_FOLD.call,
    "least_memory": least_memory,
    "least_memory with kernels": functools.partial(least_memory, invert=invert_f32, walk=walk),
}


class Run(NamedTuple):
    """One row of 32 heads of K = V = 128, chunks of 64, bf16 with a state of f32."""

    tokens: int
    ranks: int

    @property
    def shape(self) -> Shape:
        return Shape("", 1, self.tokens, 32, 32, 128, 128, 64)


LONG, LONGEST = Run(262_144, 8), Run(1_048_576, 64)


def compile_long(form: str, run: Run) -> Any:
    """The outputs and the gradients of all six inputs. Raises Rejected."""
    name = form.replace(" ", "_")
    return compile_call(
        Implementation(name, FORMS[form], context_parallel=True), CHIP, run.shape, "bf16", ranks=run.ranks
    )
