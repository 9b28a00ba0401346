"""The ladder as a kernel: tiles of several chunks a grid cell, each tile in VMEM from the first rung to the last.

A matrix of C x C is too small to fill a matrix unit; the products of a tile are batched, so that it is filled once a
rung and not once a chunk (thread 4).
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from implementations.pallas.interpreter import is_interpreted
from implementations.ut_inversion.adjoint import with_its_adjoint
from implementations.ut_inversion.ladder import climb
from implementations.ut_inversion.products import Product, bf16x3

TILE = 8


def inversion(S: Float[Array, "... C C"], *, product: Product = bf16x3, tile: int = TILE) -> Float[Array, "... C C"]:
    """`(I + S)^-1` for strictly lower triangular S (what stands on or above the diagonal is not read).

    `tile` chunks are inverted at a time. The backward is two products in XLA.
    """
    return with_its_adjoint(functools.partial(_in_tiles, tile=tile), product)(S)


def _in_tiles(S: Float[Array, "... C C"], product: Product, *, tile: int) -> Float[Array, "... C C"]:
    *batch, size, _ = S.shape
    count = math.prod(batch)
    tiles = -(-count // tile)
    padded = jnp.pad(S.reshape(count, size, size), ((0, tiles * tile - count), (0, 0), (0, 0)))
    block = pl.BlockSpec((tile, size, size), lambda i: (i, 0, 0))
    T = pl.pallas_call(
        functools.partial(_kernel, product=product),
        name="inversion",
        grid=(tiles,),
        in_specs=[block],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(padded.shape, S.dtype),
        interpret=is_interpreted(),
    )(padded)
    return T[:count].reshape(S.shape)


def _kernel(S: Any, T: Any, *, product: Product) -> None:
    T[...] = climb(S[...], product)
