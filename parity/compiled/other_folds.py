"""Ways to a rank's map that cost memory: not used, and here so that what they cost is measured (threads 1 and 2)."""

from collections.abc import Callable
from unittest.mock import patch

import jax

from implementations.chunked import Factors
from implementations.context_parallel.affine import Affine, compose, of_chunk

MapOfRank = Callable[[Factors], Affine]


def without_checkpoint(map_of_rank: MapOfRank) -> MapOfRank:
    """The same program, whose backward keeps what it finds useful of every chunk."""

    def call(chunks: Factors) -> Affine:
        with patch.object(jax, "checkpoint", lambda body: body):
            return map_of_rank(chunks)

    return call


def associative_fold(chunks: Factors) -> Affine:
    """The last of all running compositions: a tree of them, each of which is there at the same time."""
    A, B = jax.lax.associative_scan(lambda earlier, later: compose(later, earlier), of_chunk(chunks))
    return A[-1], B[-1]
