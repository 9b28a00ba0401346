"""The layer on meshes, in every mode: against the oracle, the modes against each other, and what devices exchange."""

from collections import Counter
from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from implementations.causal_conv import causal_conv
from implementations.chunked import CHUNKED
from implementations.context_parallel.gspmd_conv import gspmd_conv
from implementations.context_parallel.halo_conv import halo_conv
from implementations.context_parallel.least_memory import LEAST_MEMORY
from implementations.context_parallel.load_balanced import LOAD_BALANCED
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.contract import FEATURES
from implementations.layer_on_mesh import layer_on_mesh
from implementations.layer_sizes import parameters_like, states_like
from oracles.gated_delta_net import OUTPUTS
from parity.compiled.collectives import collectives
from parity.faults.edits import Edit, edited
from parity.faults.fault import STRUCTURAL
from parity.faults.parts import Seen
from parity.layer_layouts import (
    DATA_CONTEXT_TENSOR,
    DATA_TENSOR,
    EIGHT_RANKS,
    FOUR_RANKS,
    OF_LEAST_MEMORY,
    SIZES,
    TWO_CONTEXT_AXES,
    ZIGZAG,
    B,
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
    *((ZIGZAG, mode) for mode in ("automatic", "explicit")),
    (OF_LEAST_MEMORY, "manual"),
]


def check(found, dtype, layout, other=None):
    worst = off(found, dtype, layout, other=other)
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
    """In one test, for each program serves it twice: each is held against the oracle too.

    Manual y is bit for bit that of the others in a program without gradients. In one with them XLA has the norm divide
    by its root in two modes, and multiply by the reciprocal in the third.
    """
    layouts = {mode: DATA_CONTEXT_TENSOR.layout(mode) for mode in MODES}
    forward = {mode: answers(layout, dtype, backward=False) for mode, layout in layouts.items()}
    found = {mode: answers(layout, dtype) for mode, layout in layouts.items()}
    for mode, layout in layouts.items():
        assert differing_bits(forward[mode], forward["automatic"]) == [], mode
        assert differing_copies(found[mode]) == []
        check(found[mode], dtype, layout)
        check(found[mode], dtype, layout, other=found["automatic"])
    assert differing_bits(found["explicit"], found["automatic"]) == []


def differing_bits(found, other):
    """The outputs that are not the same bits."""
    return [name for name in OUTPUTS if np.asarray(found[name]).tobytes() != np.asarray(other[name]).tobytes()]


# Mistakes that must be seen

ON_MESH = "implementations.layer_on_mesh"
HALO, RULE = (f"implementations.context_parallel.{name}" for name in ("halo_conv", "two_phase"))
CAST = "parameters, x, conv_state = jax.tree.map(lambda x, like: x.astype(like.dtype), wide, narrow)\n"
OF_THE_FIRST = "{name}=jax.lax.all_gather(parameters['{name}'], layout.tensor, tiled=True)[: len(parameters['{name}'])]"

# The mode, the edit, and the outputs that are wrong; the others are right.
MISTAKES = {
    "each device adds its own heads alone": (
        *("manual", Edit(ON_MESH, "jax.lax.psum(of_own_heads, layout.tensor)", "of_own_heads")),
        {"y"},
    ),
    "gates of the first heads on every device": (
        *(
            "manual",
            Edit(ON_MESH, CAST, f"{CAST}        parameters = dict(parameters, {OF_THE_FIRST.format(name='A_log')})\n"),
        ),
        {"y", "final_recurrent_state"},
    ),
    "convolution weights of the first heads on every device": (
        *(
            "manual",
            Edit(ON_MESH, CAST, f"{CAST}        parameters = dict(parameters, {OF_THE_FIRST.format(name='conv_k')})\n"),
        ),
        {"y", "final_recurrent_state"},
    ),
    "no halo": (
        *("explicit", Edit(HALO, "from_piece_before(tail.astype(x.dtype), axes, order)", "jnp.zeros_like(tail)")),
        {"y", "final_recurrent_state"},
    ),
    "every rank starts from the initial state": (
        *("explicit", Edit(RULE, "walk(entering, factors)", "walk(inputs[5], factors)")),
        {"y"},
    ),
}


def of_wrong_code(layer, mode, *, backward, rule=TWO_PHASE):
    """The worst units of each quantity."""
    layout = DATA_CONTEXT_TENSOR.layout(mode, rule=rule)
    return off(answers(layout, "f64", layer=layer, backward=backward), "f64", layout)


def far(worst):
    """What is wrong, each by far."""
    wrong = {name for name, units in worst.items() if units > limits().base["f64"].units}
    assert all(worst[name] > STRUCTURAL * limits().base["f64"].units for name in wrong)
    return wrong


@pytest.mark.faults
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name, record_mistake):
    mode, edit, outputs = MISTAKES[name]
    if edit.module == RULE:  # the layout has it, and not the layer
        layer, rule = layer_on_mesh, replace(TWO_PHASE, call=edited(f"{RULE}:two_phase", edit))
    else:
        layer, rule = edited(f"{ON_MESH}:layer_on_mesh", edit), TWO_PHASE
    found = of_wrong_code(layer, mode, backward=False, rule=rule)
    record_mistake(Seen(f"layout, {mode}", name, "f64", limits().base["f64"].units, found))
    assert far(found) == outputs


@pytest.mark.faults
def test_a_cotangent_of_the_sum_over_heads_that_is_halved_is_seen(record_mistake):
    """The transpose of a `psum` is one: as if each device had its own y, all of them asked for."""
    summed = "jax.lax.psum(of_own_heads, layout.tensor)"
    right_forward = f"of_own_heads + jax.lax.stop_gradient({summed} - of_own_heads)"
    planted = edited(f"{ON_MESH}:layer_on_mesh", Edit(ON_MESH, summed, right_forward))
    found = of_wrong_code(planted, "manual", backward=True)
    name = "the cotangent of the sum over heads is halved"
    record_mistake(Seen("layout, manual", name, "f64", limits().base["f64"].units, found))
    assert {"dx", "dout", "dnorm", "dA_log", "dconv_q", "drecurrent_state"} <= far(found)
    assert not far(found) & set(OUTPUTS)


def test_a_border_that_states_another_layout_than_the_types_have_is_refused_by_them():
    """Where it says that every device has all heads: explicit types are what a wrong layout would have to get past."""
    states = "heads, of_y = layout.tokens(heads=True), "
    planted = edited(f"{ON_MESH}:layer_on_mesh", Edit(ON_MESH, states, "heads, of_y = layout.tokens(), "))
    with pytest.raises(Exception, match=r"in_specs passed to shard_map: .* does not match the specs of the input"):
        answers(DATA_CONTEXT_TENSOR.layout("explicit"), "f32", layer=planted, backward=False)


# What is exchanged, in the compiled program

LENGTHS = (4 * 26, 8 * 26)  # no other size is one of these, or a rank's part of it


@cache
def exchanged(mode, tokens, *, backward, layer=layer_on_mesh):
    """Of arrays, one by one: what one device holds after each collective, and between how many devices it is."""
    layout = FOUR_RANKS.layout(mode)
    x = jax.ShapeDtypeStruct((B, tokens, SIZES.D), jnp.float32)
    inputs = parameters_like(SIZES, x.dtype), x, *states_like(SIZES, B, x.dtype)
    inputs, cotangents = (
        jax.tree.map(
            lambda like, over: jax.ShapeDtypeStruct(like.shape, like.dtype, sharding=over),
            some,
            layout.shardings(specs),
        )
        for some, specs in ((inputs, layout.inputs()), (inputs[1:], layout.outputs()))
    )
    compiled = program(layout, layer, "f32", backward).lower(inputs, cotangents).compile()
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


def test_a_sequence_that_is_exchanged_would_be_seen():
    """As for the convolution of one device, which joins the state to the tokens."""
    mine = "partial(layout.convolution or halo_conv, **_ranks(layout), **order)"
    planted = edited(f"{ON_MESH}:layer_on_mesh", Edit(ON_MESH, mine, "causal_conv"))
    found = exchanged("automatic", LENGTHS[0], backward=False, layer=planted)
    assert any(LENGTHS[0] // 4 in shape for kind, shape, _ in found if kind != "all-reduce")


def test_what_comes_whole_is_moved_to_where_it_should_lie():
    """A_log and dt_bias onto the heads, among others: in types that do not fit nothing would be moved for them."""
    layout = DATA_CONTEXT_TENSOR.layout("explicit")
    found = answers(layout, "f32", backward=False)
    whole = answers(layout, "f32", backward=False, lies=lambda specs: jax.tree.map(lambda _: PartitionSpec(), specs))
    assert differing_bits(whole, found) == []


# What is refused, in which words

of_one_axis = replace(TWO_PHASE, supports=FEATURES - {"several_axes"})
of_context_alone = replace(TWO_PHASE, supports=FEATURES - {"other_axes"})
with_a_vjp = replace(TWO_PHASE, vjp=lambda *inputs, scale, chunk_size, mesh, axes, segment_ids=None: inputs[:6])

REFUSED = {
    "an axis that the mesh lacks": ({"context": ("sequence",)}, r"the mesh has the axes .*; got \['sequence'\]"),
    "an axis for two things": ({"context": ("data",)}, "one of them only.*'data'.* twice"),
    "context that is no tuple": ({"context": "context"}, "context must be a tuple of axes, major to minor"),
    "an unknown mode": ({"mode": "auto"}, "mode must be one of"),
    "automatic axes where they are to be explicit": (
        {"mode": "explicit"},
        "in mode 'explicit' every axis of the mesh must be AxisType.Explicit; .*axis_types=",
    ),
    "heads that tensor does not divide": (
        {"sizes": replace(SIZES, Hk=3)},
        "a device holds whole heads.*Hk = 3 over 2: use a smaller axis, or write each key head down several times",
    ),
    "a rule that must see all tokens": (
        {"rule": CHUNKED},
        r"would gather the sequence. Use a context-parallel rule, or any_kernel.context_parallel\(chunked\)",
    ),
    "ranks without tokens": ({"context": ()}, "no axes for its ranks: name them in context=, or use a rule for one"),
    "two axes for a rule of one": (
        {"data": None, "context": ("data", "context"), "rule": of_one_axis},
        "numbers its ranks over one axis.*make one axis of them, or use a rule that supports several_axes",
    ),
    "rows and heads beside a rule that takes none": (
        {"rule": of_context_alone},
        r"rows or heads lie over \['data', 'tensor'\]: use a mesh of context axes alone, or a rule that supports them",
    ),
    "a rule that jax does not differentiate": (
        {"rule": with_a_vjp},
        "brings a vjp that jax does not know of, and the layer is differentiated as a whole: wrap its call",
    ),
    "zigzag order, and a rule that hands the state from rank to rank": (
        {"piece_order": (0, 3, 1, 2)},
        r"in load-balanced \(zigzag\) order a rank holds several.*the result would be wrong, and nothing would say so. "
        "Lay the tokens out in sequence order, or use `load_balanced`",
    ),
    "zigzag order, and a convolution that takes its halo from what lies before": (
        {"rule": LOAD_BALANCED, "piece_order": (0, 3, 1, 2), "convolution": gspmd_conv},
        r"gspmd_conv takes the tokens before.*nothing would say so. Leave convolution out.*or lay the tokens out in ",
    ),
    "a convolution that must see all tokens": (
        {"convolution": causal_conv},
        "the compiler exchanges them all for it: leave convolution out",
    ),
    "an order without ranks": (
        {"context": (), "rule": CHUNKED, "piece_order": (0, 1)},
        r"there are no axes context; got \(0, 1\)",
    ),
    "an order that is none": (
        {"rule": LOAD_BALANCED, "piece_order": (0, 0, 1, 2)},
        "piece_order must hold each of the pieces 0, 1, ... once",
    ),
    "a halo where there are no ranks": ({"context": (), "rule": CHUNKED, "convolution": halo_conv}, "leave it out"),
    "a rule whose ranks are its own, where all axes are manual": (
        {"mode": "manual", "rule": replace(TWO_PHASE, supports=FEATURES - {"manual_axes"})},
        "in mode 'manual' the rule is called where all axes are manual, and two_phase does not support manual_axes.*"
        "Use mode 'automatic', or a rule that supports them",
    ),
    "the partitioner's convolution where it has no say": (
        {"mode": "manual", "convolution": gspmd_conv},
        "the compiler's partitioner, which has no say over axes that are manual.*use mode 'automatic'",
    ),
    "a convolution of one's own where all axes are manual": (
        {"mode": "manual", "convolution": partial(halo_conv)},
        "no other can be given: leave convolution out, or use mode 'automatic'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_when_the_layer_is_configured(name, monkeypatch):
    """With the reason, and what to use instead, as users see it: without the checks of jaxtyping."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    keywords, words = REFUSED[name]
    mesh = DATA_CONTEXT_TENSOR.layout("manual").mesh  # of automatic axes, and never of explicit ones
    with pytest.raises(ValueError, match=words):
        DATA_CONTEXT_TENSOR.layout(**{"mode": "automatic", "mesh": mesh} | keywords)


@pytest.mark.parametrize("mode", ["explicit", "manual"])
def test_explicit_axes_take_no_convolution_of_the_partitioner(mode):
    with pytest.raises(ValueError, match=f"no say over axes that are {mode}, and a left pad of a sharded axis"):
        DATA_CONTEXT_TENSOR.layout(mode, convolution=gspmd_conv)


def test_explicit_axes_are_not_automatic():
    mesh = DATA_CONTEXT_TENSOR.mesh("explicit")
    with pytest.raises(
        ValueError, match=r"mode 'automatic' every axis of the mesh must be AxisType.Auto; got .*Explicit"
    ):
        DATA_CONTEXT_TENSOR.layout("automatic", mesh=mesh)
    DATA_CONTEXT_TENSOR.layout("manual", mesh=mesh)  # a shard_map makes any axis manual


@each_mode
def test_what_only_arrays_can_say_is_refused_when_they_come(mode):
    layout = DATA_CONTEXT_TENSOR.layout(mode)

    def call(rows, tokens):
        x = jax.ShapeDtypeStruct((rows, tokens, SIZES.D), jnp.float32)
        inputs = parameters_like(SIZES, x.dtype), x, *states_like(SIZES, rows, x.dtype)
        jax.eval_shape(partial(layer_on_mesh, layout), *inputs)

    call(2, 8)
    with pytest.raises(
        ValueError, match="B must be a multiple of the devices of 'data'; got B = 3 over 2: pad the batch"
    ):
        call(3, 8)
    with pytest.raises(ValueError, match="T must be a multiple of the number of ranks"):
        call(2, 9)
    with pytest.raises(ValueError, match="each rank must hold at least the W - 1 = 3 tokens"):
        call(2, 4)


def test_tokens_over_the_same_axes_in_another_order_are_refused_when_they_come():
    layout = TWO_CONTEXT_AXES.layout("explicit")
    parameters, _, *states = layout.inputs()
    turned = parameters, PartitionSpec(None, layout.context[::-1]), *states
    with pytest.raises(ValueError, match="each rank would hold the tokens of another"):
        answers(layout, "f32", backward=False, lies=lambda specs: turned)


@pytest.mark.parametrize(
    ("rule", "convolution"),
    [(LOAD_BALANCED, None), (LOAD_BALANCED, gspmd_conv), (LEAST_MEMORY, None)],
    ids=["load_balanced", "gspmd_conv", "least_memory"],
)
def test_pieces_in_the_order_of_the_sequence_are_taken_by_who_knows_no_other(rule, convolution):
    layout = DATA_CONTEXT_TENSOR.layout("automatic", rule=rule, convolution=convolution, piece_order=(0, 1, 2, 3))
    x = jax.ShapeDtypeStruct((2, 16, SIZES.D), jnp.float32)
    inputs = parameters_like(SIZES, x.dtype), x, *states_like(SIZES, 2, x.dtype)
    assert jax.eval_shape(partial(layer_on_mesh, layout), *inputs)[0].shape == x.shape


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"rule": replace(TWO_PHASE, packed=False)}, "two_phase knows no segment_ids: give each document a row"),
        ({"convolution": gspmd_conv}, "gspmd_conv knows no segment_ids: leave convolution out"),
    ],
    ids=["rule", "convolution"],
)
def test_documents_are_refused_where_a_part_knows_none(keywords, says):
    layout = DATA_CONTEXT_TENSOR.layout("automatic", **keywords)
    x, ids = jax.ShapeDtypeStruct((2, 16, SIZES.D), jnp.float32), jax.ShapeDtypeStruct((2, 16), jnp.int32)
    inputs = parameters_like(SIZES, x.dtype), x, *states_like(SIZES, 2, x.dtype), ids
    with pytest.raises(ValueError, match=says):
        jax.eval_shape(partial(layer_on_mesh, layout), *inputs)
