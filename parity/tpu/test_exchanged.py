"""The proofs about the compiled program, on what the compiler of TPUs makes of it: what ranks exchange is what the form
says, whatever the length; a halo is of W - 1 tokens; and a device holds no more of other ranks than their maps.

For a slice of v5p. `parity/compiled` proves the same of programs for CPUs, of more schemes and layouts.
"""

import functools
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from implementations import ALL, VARIANTS
from implementations.causal_conv import causal_conv
from implementations.context_parallel.gspmd_conv import gspmd_conv
from implementations.context_parallel.halo_conv import halo_conv
from implementations.contract import Implementation
from parity.compiled.collectives import collectives
from parity.compiled.programs import temporaries
from parity.layouts import over
from parity.meshes import mesh_of
from parity.shapes import Shape
from parity.tpu.ahead import compile_call, compile_for
from parity.tpu.slices import devices

pytestmark = pytest.mark.tpu_aot

CHIP, R = "v5p", 4
B, H, K, C = 1, 4, 128, 64
STATE = B * H * K * K
MAP = 2 * STATE
LENGTHS = (R * 192, R * 320)  # no other size is one of these, or a rank's part of it

BY_NAME = {implementation.name: implementation for implementation in (*ALL, *VARIANTS)}
# Elements that arrive at all ranks together, forward and backward; of a sum over ranks, how many states are summed.
GATHER = {
    "all-gather": R * (R - 1) * MAP,
    "scattered sums": 2,
    "sums of a state": 1,
}  # of A and of B, which is as large
HOPS = (R - 1) * STATE
ROUNDS = (R * 2 - 2**2 + 1) * MAP + HOPS
FIGURES = {
    **dict.fromkeys(("two_phase", "three_phase", "pallas_fold", "pallas_local_pass"), GATHER),
    "fold_log_depth": {"collective-permute": 2 * ROUNDS, "sums of a state": 3},
    "fold_ring": {"collective-permute": 2 * HOPS, "sums of a state": 3},
    # Its backward hands cotangents over as its forward hands states over, and every rank knows dh0.
    "least_memory": {"all-gather": 2 * R * (R - 1) * MAP},
}


@functools.cache
def program(name: str, tokens: int, ranks: int = R):
    shape = Shape("", B, tokens, H, H, K, K, C)
    return compile_call(BY_NAME[name], CHIP, shape, "f32", ranks=ranks)


def received(found):
    """The transpose of a gather is a scattered sum. Of a small one the compiler makes a sum to all, of which each rank
    takes its part: the same sum, in up to twice the traffic.
    """
    total = Counter()
    for each in found:
        states, rest = divmod(each.elements, STATE)
        if each.kind not in ("all-reduce", "reduce-scatter"):
            total[each.kind] += each.received
        elif each.kind == "reduce-scatter" or states == R:
            total["scattered sums"] += 1
        else:
            total["sums of a state"] += states  # several may be one
        assert not rest
    return dict(total)


@pytest.mark.parametrize("name", FIGURES, ids=lambda name: name.replace("_", " "))
def test_what_is_exchanged_is_what_the_form_says_whatever_the_length(name):
    short, long = (collectives(program(name, tokens).as_text()) for tokens in LENGTHS)
    assert received(short) == FIGURES[name]
    assert Counter(short) == Counter(long)
    assert all(each.times == 1 for each in short)
    sizes = {size for each in short for shape in each.shapes for size in shape}
    assert not sizes & {tokens // ranks for tokens in LENGTHS for ranks in (1, R)}


TOKENS = 1024  # of a rank


def growth(call_of_ranks):
    """Bytes that a device holds for each other rank, at the same number of tokens a rank."""
    two, eight = (temporaries(call_of_ranks(ranks)) for ranks in (2, 8))
    return (eight - two) / 6


@pytest.mark.parametrize(
    ("name", "most"),
    [("two_phase", 3 * MAP + STATE), ("pallas_fold", 3 * MAP + STATE), ("least_memory", MAP + STATE)],
    ids=["two phase", "pallas fold", "least memory"],
)
def test_of_another_rank_a_device_holds_its_map_and_what_enters_it(name, most):
    """The map, its cotangent, and of that the sum over ranks; `least_memory` differentiates no map."""
    assert growth(lambda ranks: program(name, ranks * TOKENS, ranks)) <= 4 * most


def gathers(*inputs, scale, chunk_size, mesh, axes):
    return BY_NAME["chunked"].call(*inputs, scale=scale, chunk_size=chunk_size)


def gathering(tokens, ranks=R):
    wrong = Implementation("gathers", gathers, context_parallel=True)
    return compile_call(wrong, CHIP, Shape("", B, tokens, H, H, K, K, C), "f32", ranks=ranks)


def test_a_scheme_that_gathers_tokens_holds_those_of_another_rank():
    tokens_of_a_rank = 4 * B * H * TOKENS * 3 * K
    assert growth(lambda ranks: gathering(ranks * TOKENS, ranks)) > tokens_of_a_rank > 4 * (3 * MAP + STATE)


def test_a_scheme_that_gathers_tokens_exchanges_all_chunks():
    short, long = (collectives(gathering(tokens).as_text()) for tokens in LENGTHS)
    assert Counter(short) != Counter(long)
    for found, tokens in ((short, LENGTHS[0]), (long, LENGTHS[1])):
        assert any(tokens // C in shape for each in found for shape in each.shapes)


# The convolution

D, W = 256, 4
HALO = B * (W - 1) * D
CONVOLUTIONS = [halo_conv, gspmd_conv]


def of_convolution(convolution, tokens):
    layout = over(R)
    mesh = mesh_of(layout, devices(CHIP, R))

    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec)))

    x, weight = array((B, tokens, D), None, layout.axes), array((D, W))
    state = array((B, W - 1, D))
    call = convolution if convolution is causal_conv else functools.partial(convolution, mesh=mesh, axes=layout.axes)

    def outputs_and_gradients(x, weight, state, dy, dfinal_state):
        outputs, pullback = jax.vjp(call, x, weight, state)
        return outputs, pullback((dy, dfinal_state))

    arguments = (x, weight, state, x, state)
    return collectives(compile_for(CHIP, convolution.__name__, outputs_and_gradients, *arguments).as_text())


@pytest.mark.parametrize("convolution", CONVOLUTIONS, ids=lambda f: f.__name__)
def test_a_halo_is_of_one_token_less_than_the_kernel(convolution):
    short, long = (of_convolution(convolution, tokens) for tokens in LENGTHS)
    assert Counter(short) == Counter(long)
    assert {each.kind for each in short} == {"collective-permute", "all-reduce"}
    halos = [each for each in short if each.kind == "collective-permute"]
    assert [each.received for each in halos] == [(R - 1) * HALO] * 2  # x for y, and what goes back for dx
    assert sum(each.elements for each in short if each.kind == "all-reduce") == HALO + D * W + HALO


def test_to_join_the_state_to_the_tokens_is_more_than_halos():
    found = of_convolution(causal_conv, LENGTHS[0])
    assert sum(each.received for each in found) > sum(each.received for each in of_convolution(halo_conv, LENGTHS[0]))
