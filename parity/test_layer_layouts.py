"""The layer on meshes, in every mode: against the oracle, the modes against each other, and what devices exchange."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from implementations.chunked import CHUNKED
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.layer_layout import LayerLayout
from implementations.layer_on_mesh import layer_on_mesh
from implementations.layer_sizes import parameters_like, states_like
from oracles.gated_delta_net import OUTPUTS
from parity.compiled.collectives import collectives
from parity.faults.edits import Edit, edited
from parity.faults.fault import STRUCTURAL
from parity.layer_layouts import (
    CHUNK_SIZE,
    DATA_CONTEXT_TENSOR,
    DATA_TENSOR,
    EIGHT_RANKS,
    FOUR_RANKS,
    SIZES,
    TWO_CONTEXT_AXES,
    B,
    T,
    answers,
    differing_copies,
    off,
    program,
)
from parity.tolerances.limits import limits

MODES = ("automatic", "explicit", "manual")
each_mode = pytest.mark.parametrize("mode", MODES)

# A gradient program is seconds of compilation: every mode where all axes are, and each again where it has most to say.
ASKED = [
    *((DATA_CONTEXT_TENSOR, mode) for mode in MODES),
    *((TWO_CONTEXT_AXES, mode) for mode in ("explicit", "manual")),
    *((DATA_TENSOR, mode) for mode in ("automatic", "explicit")),
    (EIGHT_RANKS, "explicit"),
]


def check(found, dtype, layout, other=None):
    worst = off(found, dtype, held=T // layout.ranks, other=other)
    name = max(worst, key=worst.__getitem__)
    assert worst[name] <= limits().base[dtype].units, f"{name} is off by {worst[name]:.3g} units"


@pytest.mark.gate
@pytest.mark.ranks(8)
@pytest.mark.parametrize("dtype", ["f64"])
@pytest.mark.parametrize(("place", "mode"), ASKED, ids=[f"{place.name}-{mode}" for place, mode in ASKED])
def test_all_quantities_are_those_of_the_oracle(place, mode, dtype):
    layout = place.layout(mode)
    found = answers(layout, dtype)
    assert differing_copies(found) == []
    check(found, dtype, layout)


@pytest.mark.gate
@pytest.mark.ranks(8)
@pytest.mark.parametrize("dtype", ["f32"])
def test_the_modes_agree_bit_for_bit_forward_and_within_the_unit_backward(dtype):
    """In one test, for each program serves it twice: each is held against the oracle too."""
    layouts = {mode: DATA_CONTEXT_TENSOR.layout(mode) for mode in MODES}
    found = {mode: answers(layout, dtype) for mode, layout in layouts.items()}
    for mode, layout in layouts.items():
        assert differing_copies(found[mode]) == []
        check(found[mode], dtype, layout)
        check(found[mode], dtype, layout, other=found["automatic"])
        differ = [
            name for name in OUTPUTS if np.asarray(found[mode][name]).tobytes() != np.asarray(found["automatic"][name]).tobytes()
        ]
        assert differ == [], mode


# Mistakes that must be seen

ON_MESH, ON_RANK = "implementations.layer_on_mesh", "implementations.context_parallel.on_rank"
CAST = "parameters, conv_state = jax.tree.map(lambda x, like: x.astype(like.dtype), wide, narrow)\n"
OF_THE_FIRST = "{name}=jax.lax.all_gather(parameters['{name}'], layout.tensor, tiled=True)[: len(parameters['{name}'])]"

# The mode, the edit, and the outputs that are wrong; the others are right.
MISTAKES = {
    "each device adds its own heads alone": (
        *("manual", Edit(ON_MESH, "jax.lax.psum(of_own_heads, layout.tensor)", "of_own_heads")),
        {"y"},
    ),
    "gates of the first heads on every device": (
        *("manual", Edit(ON_MESH, CAST, f"{CAST}        parameters = dict(parameters, {OF_THE_FIRST.format(name='A_log')})\n")),
        {"y", "final_recurrent_state"},
    ),
    "convolution weights of the first heads on every device": (
        *("manual", Edit(ON_MESH, CAST, f"{CAST}        parameters = dict(parameters, {OF_THE_FIRST.format(name='conv_k')})\n")),
        {"y", "final_recurrent_state"},
    ),
    "no halo": (
        *("explicit", Edit(ON_RANK, "permute(x[:, x.shape[1] - halo :], axes, hops)", "jnp.zeros_like(initial_state)")),
        {"y", "final_recurrent_state"},
    ),
    "every rank starts from the initial state": (
        *("explicit", Edit(ON_RANK, "walk(entering, factors)", "walk(initial_state, factors)")),
        {"y"},
    ),
}


def wrong(layer, mode, *, backward):
    layout = DATA_CONTEXT_TENSOR.layout(mode)
    worst = off(answers(layout, "f64", layer=layer, backward=backward), "f64", held=T // layout.ranks)
    far = {name for name, units in worst.items() if units > limits().base["f64"].units}
    assert all(worst[name] > STRUCTURAL * limits().base["f64"].units for name in far)
    return far


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name):
    mode, edit, outputs = MISTAKES[name]
    assert wrong(edited(f"{ON_MESH}:layer_on_mesh", edit), mode, backward=False) == outputs


def test_a_cotangent_of_the_sum_over_heads_that_is_halved_is_seen():
    """The transpose of a `psum` is one: as if each device had its own y, all of them asked for."""
    summed = "jax.lax.psum(of_own_heads, layout.tensor)"
    right_forward = f"of_own_heads + jax.lax.stop_gradient({summed} - of_own_heads)"
    far = wrong(edited(f"{ON_MESH}:layer_on_mesh", Edit(ON_MESH, summed, right_forward)), "manual", backward=True)
    assert {"dx", "dout", "dnorm", "dA_log", "dconv_q", "drecurrent_state"} <= far
    assert not far & set(OUTPUTS)


def test_a_border_that_states_another_layout_than_the_types_have_is_refused_by_them():
    """Where it says that every device has all heads: explicit types are what a wrong layout would have to get past."""
    states = "heads, of_y = layout.tokens(heads=True), "
    planted = edited(f"{ON_MESH}:layer_on_mesh", Edit(ON_MESH, states, "heads, of_y = layout.tokens(), "))
    with pytest.raises(Exception, match="(?s)shard_map.*in_specs"):
        answers(DATA_CONTEXT_TENSOR.layout("explicit"), "f32", layer=planted, backward=False)


# What is exchanged, in the compiled program

LENGTHS = (4 * 26, 8 * 26)  # no other size is one of these, or a rank's part of it


@cache
def exchanged(mode, tokens, *, backward):
    """Of arrays, one by one: what one device holds after each collective, and between how many devices it is."""
    layout = FOUR_RANKS.layout(mode)
    x = jax.ShapeDtypeStruct((B, tokens, SIZES.D), jnp.float32)
    inputs = parameters_like(SIZES, x.dtype), x, *states_like(SIZES, B, x.dtype)
    inputs, cotangents = (
        jax.tree.map(
            lambda like, over: jax.ShapeDtypeStruct(like.shape, like.dtype, sharding=over), some, layout.shardings(specs)
        )
        for some, specs in ((inputs, layout.inputs()), (inputs[1:], layout.outputs()))
    )
    compiled = program(layout, layer_on_mesh, "f32", backward).lower(inputs, cotangents).compile()
    found = collectives(compiled.as_text())
    assert all(each.times == 1 for each in found)
    return Counter((each.kind, shape, each.links) for each in found for shape in each.shapes)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@each_mode
def test_of_the_sequence_nothing_is_exchanged_but_sums_over_heads_of_a_ranks_own_tokens(mode, backward):
    """Over `tensor`, which has two devices, where `context` has four. All else is the same at any length."""
    rest = []
    for tokens in LENGTHS:
        found = exchanged(mode, tokens, backward=backward)
        of_own_tokens = ("all-reduce", (B, tokens // 4, SIZES.D), 2)
        assert found[of_own_tokens] == SUMS[mode][backward]
        del found[of_own_tokens]
        assert not {size for _, shape, _ in found for size in shape} & {tokens, tokens // 4}
        rest.append(found)
    assert rest[0] == rest[1]
    assert {kind for kind, _, _ in rest[0]} == {"all-reduce", "collective-permute"}
    assert {each: n for each, n in rest[0].items() if each[0] == "collective-permute"} == permuted(backward)


# y and, where it is wanted, what each of six projections sends back to x, or all together.
SUMS = {"automatic": (1, 7), "explicit": (1, 7), "manual": (1, 3)}


def permuted(backward):
    """Halos of three convolutions, to the next rank; the maps of ranks, at each of three distances; and back again."""
    (_, Hk, Hv, K, V, W), times = vars(SIZES).values(), 1 + backward
    halos = Counter({("collective-permute", (B, W - 1, size // 2), 6): times for size in (Hv * V,)})
    halos["collective-permute", (B, W - 1, Hk * K // 2), 6] += 2 * times
    maps = {("collective-permute", (B, Hv // 2, K, size), 8): 3 * times for size in (K, V)}
    return dict(halos) | maps


# What is refused, in which words
