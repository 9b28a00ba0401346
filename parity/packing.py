"""Documents packed into the rows of a problem: where they begin, in all the places in which one can be missed.

They are values and not a shape: one compilation serves all packings. Ranks are taken to be eight (or the most that
divide the tokens), so that the edges of fewer ranks are among theirs, and lie inside of them too.
"""

from collections.abc import Callable, Mapping

import numpy as np

from parity.shapes import Shape

# By the row of a batch, in turn: where documents begin, token 0 and what lies beyond the last token left out.
Rows = tuple[set[int], ...]


def at_edges(shape: Shape) -> Rows:
    """On the edge of every rank; in the other row a token before it and a token after it, by turns."""
    edges = _edges(shape)
    return set(edges), {edge + (1 if rank % 2 else -1) for rank, edge in enumerate(edges)}


def in_chunks(shape: Shape) -> Rows:
    """On the edges of chunks, counted from the edge of a rank and from token 0; in the other row several in one chunk,
    some of them one token long.
    """
    ranks = (0, *_edges(shape))
    on = {rank + chunk * shape.chunk_size for rank in ranks for chunk in (1, 2)}
    return on | {3 * shape.chunk_size}, {rank + inside for rank in ranks for inside in (3, 4, 5, 20, 33)}


def long(shape: Shape) -> Rows:
    """One document over many ranks, between short ones; in the other row two long ones, between two of one token."""
    return {5, shape.T - 3}, {1, shape.T // 2, shape.T - 1}


PACKINGS: Mapping[str, Callable[[Shape], Rows]] = {packing.__name__: packing for packing in (at_edges, in_chunks, long)}


def segment_ids(packing: str, shape: Shape) -> np.ndarray:
    """`[B, T]`, int32. Ids come again, and some are left out, as those of documents of no tokens are."""
    rows = PACKINGS[packing](shape)
    ids = np.zeros((shape.B, shape.T), np.int32)
    for row in range(shape.B):
        for document, start in enumerate(sorted(start for start in rows[row % len(rows)] if 0 < start < shape.T)):
            ids[row, start:] = 2 * (document + 1) % 5
    return ids


def _edges(shape: Shape) -> list[int]:
    ranks = max(n for n in range(1, 9) if shape.T % n == 0)
    return [rank * shape.T // ranks for rank in range(1, ranks)]
