"""What the ranks of a causal convolution exchange, counted in the compiled program (thread 3).

Halos of W - 1 tokens, and sums over all ranks as large as a state or as the weight, whatever the length.
"""

import functools
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from implementations.causal_conv import causal_conv
from implementations.context_parallel.conftest import mesh_of
from implementations.context_parallel.gspmd_conv import gspmd_conv
from implementations.context_parallel.halo_conv import halo_conv
from parity.compiled.collectives import collectives
from parity.faults.edits import Edit, edited

B, D, W = 2, 6, 4
HALO = B * (W - 1) * D  # elements of a halo, and of a state
LENGTHS = (8 * 13, 16 * 13)  # no other size is one of these, or a rank's part of it

# Halos that each rank but one receives, in the outputs alone, and with all gradients: x for y, and what goes back for
# dx. XLA's partitioner takes x once more, for dweight, which is a convolution of its own.
HALOS = {halo_conv: (1, 2), gspmd_conv: (1, 3)}
BOTH = pytest.mark.parametrize("convolution", HALOS)
BACKWARD = pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])


@functools.cache
def exchanged(convolution, tokens, *, backward, axes=("context",), rows_and_channels=(None, None), **sizes):
    """The collectives of the outputs, or of the outputs and all gradients, on a mesh of `sizes`.

    Where inputs and cotangents lie is said, and where results lie is left to the convolution.
    """
    mesh, (rows, channels) = mesh_of(**sizes), rows_and_channels

    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec)))

    x, weight = array((B, tokens, D), rows, axes, channels), array((D, W), channels)
    state = array((B, W - 1, D), rows, None, channels)
    call = convolution if convolution is causal_conv else functools.partial(convolution, mesh=mesh, axes=axes)

    def outputs_and_gradients(*arguments):
        outputs, pullback = jax.vjp(call, *arguments[:3])
        return outputs, pullback(arguments[3:])

    program = jax.jit(outputs_and_gradients if backward else call)
    arguments = (x, weight, state, x, state) if backward else (x, weight, state)
    return collectives(program.lower(*arguments).compile().as_text())


def permuted(found):
    return [each for each in found if each.kind == "collective-permute"]


def summed(found):
    """The elements of each sum that one device takes part in."""
    assert {each.kind for each in found} <= {"collective-permute", "all-reduce"}
    return sum(each.elements for each in found if each.kind == "all-reduce")


@BACKWARD
@pytest.mark.parametrize("ranks", [2, 4, 8])
@BOTH
def test_halos_are_of_one_token_less_than_the_kernel(convolution, ranks, backward):
    found = exchanged(convolution, LENGTHS[0], backward=backward, context=ranks)
    assert [each.elements for each in permuted(found)] == [HALO] * HALOS[convolution][backward]
    assert all(W - 1 in each.shapes[0] for each in permuted(found))
    assert all(each.received == (ranks - 1) * HALO for each in permuted(found))
    # Apart from these: the final state, and in the backward dweight and dinitial_state, are sums over all ranks.
    assert summed(found) == (HALO + D * W + HALO if backward else HALO)


@BACKWARD
@BOTH
def test_nothing_that_is_exchanged_knows_how_long_the_sequence_is(convolution, backward):
    short, long = (exchanged(convolution, tokens, backward=backward, context=4) for tokens in LENGTHS)
    assert Counter(short) == Counter(long)
    assert all(each.times == 1 for each in short)
    sizes = {size for each in short for shape in each.shapes for size in shape}
    assert not sizes & {tokens // ranks for tokens in LENGTHS for ranks in (1, 4)}


@BACKWARD
@BOTH
def test_axes_that_divide_rows_and_channels_exchange_no_tokens(convolution, backward):
    """Four groups of two ranks send a halo of their own rows and channels each, and together a whole one."""
    over = {"rows_and_channels": ("data", "tensor"), "data": 2, "context": 2, "tensor": 2}
    found = exchanged(convolution, LENGTHS[0], backward=backward, **over)
    assert [(each.elements, each.links) for each in permuted(found)] == [(HALO // 4, 4)] * HALOS[convolution][backward]
    # dweight is summed over the ranks and over the rows of the others.
    assert summed(found) == (2 * HALO // 4 + 2 * D // 2 * W if backward else HALO // 4)


@BOTH
def test_ranks_over_several_axes_exchange_as_those_over_one(convolution):
    """In an order that is not that of the mesh."""
    several = {"axes": ("c", "a", "b"), "a": 2, "b": 2, "c": 2}
    found, wanted = (exchanged(convolution, LENGTHS[0], backward=True, **over) for over in (several, {"context": 8}))
    assert Counter(map(str, permuted(found))) == Counter(map(str, permuted(wanted)))
    assert summed(found) == summed(wanted)


@BACKWARD
def test_to_join_the_state_to_the_tokens_gathers_the_sequence(backward):
    """What the partitioner makes of the code for one device: what is said above is no property of the compiler."""
    found = exchanged(causal_conv, LENGTHS[0], backward=backward, context=4)
    assert any(LENGTHS[0] in shape for each in found for shape in each.shapes if each.kind == "all-gather")


def test_a_halo_that_wraps_around_would_be_counted():
    """Where rank 0 drops what the last rank sends it, no result is wrong."""
    name = "implementations.context_parallel"
    steps = "(lies[piece], lies[piece + 1]) for piece in range(len(order) - 1)"
    around = "(lies[piece], lies[(piece + 1) % len(order)]) for piece in range(len(order))"
    planted = edited(f"{name}.halo_conv:halo_conv", Edit(f"{name}.pieces", steps, around))
    found = exchanged(planted, LENGTHS[0], backward=False, context=4)
    assert [each.received for each in permuted(found)] == [4 * HALO]
