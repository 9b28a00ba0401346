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
from parity.compiled.collectives import collectives
from parity.compiled.programs import temporaries
from parity.layouts import over
from parity.meshes import mesh_of
from parity.shapes import Shape
from parity.tpu.ahead import compile_call, compile_for
from parity.tpu.slices import devices

pytestmark = pytest.mark.tpu_aot

CHIP, R = "v5p", 4
B, H, K, C = 1, 2, 128, 64
STATE = B * H * K * K
MAP = 2 * STATE
LENGTHS = (R * 192, R * 320)  # no other size is one of these, or a rank's part of it

BY_NAME = {implementation.name: implementation for implementation in (*ALL, *VARIANTS)}
# Elements that arrive at all ranks together: of the forward, and of the backward beside it.
GATHERED = {"all-gather": R * (R - 1) * MAP}
HOPS = (R - 1) * STATE
ROUNDS = (R * 2 - 2**2 + 1) * MAP + HOPS
FIGURES = {
    "two_phase": GATHERED | {"reduce-scatter": R * (R - 1) * MAP, "sums of a state": 1},
    "three_phase": GATHERED | {"reduce-scatter": R * (R - 1) * MAP, "sums of a state": 1},
    "pallas_fold": GATHERED | {"reduce-scatter": R * (R - 1) * MAP, "sums of a state": 1},
    "pallas_local_pass": GATHERED | {"reduce-scatter": R * (R - 1) * MAP, "sums of a state": 1},
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
    total = Counter()
    for each in found:
        if each.kind == "all-reduce":
            assert each.elements == len(each.shapes) * STATE  # several may be one
            total["sums of a state"] += len(each.shapes)
        else:
            total[each.kind] += each.received
    return dict(total)


@pytest.mark.parametrize("name", FIGURES, ids=lambda name: name.replace("_", " "))
def test_what_is_exchanged_is_what_the_form_says_whatever_the_length(name):
    short, long = (collectives(program(name, tokens).as_text()) for tokens in LENGTHS)
    assert received(short) == FIGURES[name]
    assert Counter(short) == Counter(long)
    assert all(each.times == 1 for each in short)
    sizes = {size for each in short for shape in each.shapes for size in shape}
    assert not sizes & {tokens // ranks for tokens in LENGTHS for ranks in (1, R)}


@pytest.mark.parametrize("name", ["two_phase", "pallas_fold", "least_memory"], ids=lambda name: name.replace("_", " "))
def test_of_another_rank_a_device_holds_its_map_and_what_enters_it(name):
    """At the same number of tokens a rank: the map and its cotangent, which are gathered, and the state."""
    tokens = 192
    two, eight = (temporaries(program(name, ranks * tokens, ranks)) for ranks in (2, 8))
    assert 0 < (eight - two) / 6 <= 4 * (2 * MAP + STATE)


def test_a_scheme_that_gathers_tokens_is_seen():
    def gathers(*inputs, scale, chunk_size, mesh, axes):
        return BY_NAME["chunked"].call(*inputs, scale=scale, chunk_size=chunk_size)

    wrong = BY_NAME["two_phase"].__class__("gathers", gathers, context_parallel=True)
    found = collectives(compile_call(wrong, CHIP, Shape("", B, LENGTHS[0], H, H, K, K, C), "f32", ranks=R).as_text())
    sizes = {size for each in found for shape in each.shapes for size in shape}
    assert any(size % (LENGTHS[0] // R) == 0 for size in sizes)


# The convolution

D, W = 256, 4
HALO = B * (W - 1) * D
HALOS = {halo_conv: 2, gspmd_conv: 3}  # x for y, what goes back for dx, and x once more for the partitioner's dweight


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


@pytest.mark.parametrize("convolution", HALOS, ids=lambda f: f.__name__)
def test_a_halo_is_of_one_token_less_than_the_kernel(convolution):
    short, long = (of_convolution(convolution, tokens) for tokens in LENGTHS)
    assert Counter(short) == Counter(long)
    assert {each.kind for each in short} == {"collective-permute", "all-reduce"}
    halos = [each for each in short if each.kind == "collective-permute"]
    assert [each.received for each in halos] == [(R - 1) * HALO] * HALOS[convolution]
    assert sum(each.elements for each in short if each.kind == "all-reduce") == HALO + D * W + HALO


def test_to_join_the_state_to_the_tokens_is_more_than_halos():
    found = of_convolution(causal_conv, LENGTHS[0])
    assert sum(each.received for each in found) > sum(each.received for each in of_convolution(halo_conv, LENGTHS[0]))
