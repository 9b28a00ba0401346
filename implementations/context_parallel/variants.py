"""Context parallelism made of parts: another exchange, another kernel inside, another order of the tokens.

`<map>_<exchange>` is the scheme with that map of a rank and that exchange, called by their names in the code.
"""

from collections.abc import Iterator
from functools import partial

from implementations.context_parallel.affine import fold
from implementations.context_parallel.any_kernel import CHUNKED_OVER_RANKS, SEQUENTIAL_OVER_RANKS
from implementations.context_parallel.exchange import log_depth_prefix, ring
from implementations.context_parallel.least_memory import LEAST_MEMORY
from implementations.context_parallel.least_work import LEAST_WORK
from implementations.context_parallel.load_balanced import LOAD_BALANCED
from implementations.context_parallel.three_phase import local_pass
from implementations.context_parallel.two_phase import stages, two_phase
from implementations.contract import Implementation


def _with_another_exchange() -> Iterator[Implementation]:
    for map_of_rank in (fold, local_pass):
        for name, exchange in (("log_depth", log_depth_prefix), ("ring", ring)):
            yield Implementation(
                f"{map_of_rank.__name__}_{name}",
                partial(two_phase, map_of_rank=map_of_rank, exchange=exchange),
                context_parallel=True,
                packed=True,
                stages=partial(stages, map_of_rank=map_of_rank, exchange=exchange),
            )


VARIANTS = (
    *_with_another_exchange(),
    CHUNKED_OVER_RANKS,
    SEQUENTIAL_OVER_RANKS,
    LOAD_BALANCED,
    LEAST_WORK,
    LEAST_MEMORY,
)
