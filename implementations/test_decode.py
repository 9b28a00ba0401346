"""Decoding: a step is a token of the layer, whatever was prefilled before; slots start from what they are told."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.decode import in_slots, one_token, step
from implementations.layer import gated_delta_net
from implementations.layer_sizes import PUBLISHED, parameters_like, states_like, zero_states
from implementations.sequential import sequential
from implementations.test_layer import FOUR, RULE, TWO, B, T, assert_close, drawn, each_group, jit, layer

decode = jit(step)


def decoded(parameters, x, *states):
    """All of x, one token at a time: as the layer."""
    outputs = []
    for t in range(x.shape[1]):
        y, *states = decode(parameters, x[:, t], *states)
        outputs.append(y)
    return jnp.stack(outputs, axis=1), *states


# A step


@each_group
@pytest.mark.usefixtures("x64")
def test_prefill_and_then_decoding_is_one_whole_run(sizes):
    parameters, x, *states = drawn(sizes)
    wanted = layer(parameters, x, *states)
    for prefilled in (0, 8):
        y, between = x[:, :0], states
        if prefilled:
            y, *between = layer(parameters, x[:, :prefilled], *states)
        decoded_y, *after = decoded(parameters, x[:, prefilled:], *between)
        assert_close((jnp.concatenate([y, decoded_y], axis=1), *after), wanted)


def test_a_model_in_bf16_decodes_what_it_would_have_prefilled():
    """All is rounded in the same places: the few numbers that differ lie between two of bf16."""
    parameters, x, *states = drawn(FOUR, dtype=jnp.bfloat16, rows=16)
    (y, conv, recurrent), (wanted_y, wanted_conv, wanted_recurrent) = (
        f(parameters, x, *states) for f in (decoded, jit(partial(gated_delta_net, rule=sequential)))
    )
    assert y.dtype == jnp.bfloat16
    assert recurrent.dtype == jnp.float32
    assert np.mean(np.asarray(y == wanted_y)) > 0.97
    for name in "qkv":
        assert np.mean(np.asarray(conv[name] == wanted_conv[name])) > 0.97
    assert_close((y, recurrent), (wanted_y, wanted_recurrent), ulps=1, u=2.0**-7)


@pytest.mark.usefixtures("x64")
def test_one_token_is_the_rule(inputs):
    *sequences, h0 = inputs(1)
    assert_close(jit(one_token)(*sequences, h0), jit(sequential)(*sequences, h0), ulps=4)


def test_a_step_has_no_loop():
    traced = str(jax.make_jaxpr(step)(*step_inputs()))
    assert "dot_general" in traced
    assert not any(f" {loop}[" in traced for loop in ("scan", "while", "cond"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_step_of_each_published_size_has_shapes(name):
    sizes = PUBLISHED[name]
    x, states = jax.ShapeDtypeStruct((2, sizes.D), jnp.bfloat16), states_like(sizes, 2, jnp.bfloat16)
    assert jax.eval_shape(step, parameters_like(sizes, jnp.bfloat16), x, *states) == (x, *states)


def step_inputs(rows=B, seed=0):
    parameters, x, *states = drawn(TWO, tokens=1, dtype=jnp.float32, rows=rows, seed=seed)
    return parameters, x[:, 0], *states


@pytest.mark.usefixtures("unchecked")
def test_the_rule_of_one_token_takes_one(inputs):
    with pytest.raises(ValueError, match="one_token is the rule of one token a row; got T = 2: use a rule of a sequ"):
        one_token(*inputs(2))


@pytest.mark.usefixtures("unchecked")
def test_a_step_takes_one_token_a_row():
    parameters, x, *states = step_inputs()
    with pytest.raises(ValueError, match=r"x must be \[B, D\], one token a row; got \(2, 1, 7\)"):
        step(parameters, x[:, None], *states)
    with pytest.raises(ValueError, match=r"x must be \[B, T, D = 7\].*; got \(2, 1, 6\)"):
        step(parameters, x[:, :6], *states)


# Slots

SLOTS = 5


def tables(fill=None):
    """States of five slots, all alike or of no two alike."""
    _, _, *drawn_tables = drawn(TWO, rows=SLOTS, dtype=jnp.float32, seed=3)
    return drawn_tables if fill is None else [jax.tree.map(lambda x: jnp.full_like(x, fill), t) for t in drawn_tables]


def slots_of(*slots):
    return jnp.array(slots, jnp.int32)


def at(tables, slots):
    return jax.tree.map(lambda table: table[np.array(slots)], tables)


@jit
def decode_in_slots(parameters, x, conv_states, recurrent_states, slots, has_initial_state):
    return in_slots(partial(step, parameters, x), conv_states, recurrent_states, slots, has_initial_state)


def equal(a, b):
    return all(map(partial(np.array_equal, equal_nan=True), jax.tree.leaves(a), jax.tree.leaves(b)))


def test_each_row_steps_in_its_slot_and_the_others_stay():
    parameters, x, *_ = step_inputs()
    held = tables()
    y, *after = decode_in_slots(parameters, x, *held, slots_of(3, 1), jnp.array([True, True]))
    wanted_y, *wanted = decode(parameters, x, *at(held, [3, 1]))
    assert_close((y, *at(after, [3, 1])), (wanted_y, *wanted), ulps=4, u=2.0**-24)
    assert equal(at(after, [0, 2, 4]), at(held, [0, 2, 4]))


@pytest.mark.parametrize("left", [np.nan, np.inf, -1e30], ids=str)
def test_a_reused_slot_starts_from_nothing_whatever_was_left_in_it(left):
    parameters, x, *_ = step_inputs()
    told = slots_of(3, 1), jnp.array([False, False])
    fresh = decode_in_slots(parameters, x, *tables(0.0), *told)
    y, *after = decode_in_slots(parameters, x, *tables(left), *told)
    assert equal(y, fresh[0])
    assert equal(at(after, [3, 1]), at(fresh[1:], [3, 1]))
    assert all(np.all(np.isfinite(state)) for state in jax.tree.leaves(at(after, [3, 1])))


def test_a_slot_that_is_said_to_have_a_state_is_read():
    """One row of two is told so, of slots that hold the same: NaN shows up in it and in it alone."""
    parameters, x, *_ = step_inputs()
    y, *after = decode_in_slots(parameters, x, *tables(np.nan), slots_of(3, 1), jnp.array([True, False]))
    assert np.all(np.isnan(y[0]))
    assert np.all(np.isfinite(y[1]))
    assert np.all(np.isnan(after[1][3]))
    assert np.all(np.isfinite(after[1][1]))


@pytest.mark.usefixtures("x64")
def test_prefill_in_slots_and_then_decoding_is_one_whole_run():
    """Two requests of which one continues, into slots that hold NaN, in two pieces and then token by token."""
    parameters, x, *states = drawn(TWO)
    zero = zero_states(TWO, B, jnp.float64)
    has = jnp.array([True, False])
    wanted = layer(parameters, x, *jax.tree.map(lambda a, b: jnp.concatenate([a[:1], b[1:]]), tuple(states), zero))
    prefill = jit(lambda x, *told: in_slots(partial(gated_delta_net, parameters, x, rule=RULE), *told))
    held = jax.tree.map(lambda x: jnp.full((SLOTS, *x.shape[1:]), jnp.nan).at[4].set(x[0]), tuple(states))
    slots, outputs = slots_of(4, 2), []
    for piece in (x[:, :4], x[:, 4:8]):
        y, *held = prefill(piece, *held, slots, has)
        outputs.append(y)
        has = jnp.array([True, True])
    for t in range(8, T):
        y, *held = decode_in_slots(parameters, x[:, t], *held, slots, has)
        outputs.append(y[:, None])
    assert_close((jnp.concatenate(outputs, axis=1), *at(held, [4, 2])), wanted)
    assert all(np.all(np.isnan(table)) for table in jax.tree.leaves(at(held, [0, 1, 3])))


def test_a_row_of_padding_writes_nothing_and_reads_no_slot():
    parameters, x, *_ = step_inputs(rows=3)
    held = tables()
    y, *after = decode_in_slots(parameters, x, *held, slots_of(-1, 2, SLOTS), jnp.array([False, True, True]))
    assert equal(at(after, [0, 1, 3, 4]), at(held, [0, 1, 3, 4]))
    assert np.all(np.isfinite(y[:2]))
    assert np.all(np.isnan(y[2]))


def test_what_was_left_in_a_slot_has_no_gradient():
    """Be it NaN."""

    def loss(*held):
        read = []

        def run(conv_state, recurrent_state):
            read.extend(jax.tree.leaves((conv_state, recurrent_state)))
            return recurrent_state, conv_state, recurrent_state

        in_slots(run, *held, slots_of(3, 1), has)
        return sum(jnp.sum(x**2) for x in read)

    has = jnp.array([True, False])
    poisoned = jax.tree.map(lambda x: x.at[1].set(jnp.nan), tables())
    for gradient in jax.tree.leaves(jit(jax.grad(loss, argnums=(0, 1)))(*poisoned)):
        assert np.all(gradient[jnp.array([0, 1, 2, 4])] == 0)
        assert np.all(gradient[3] != 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slots": jnp.array([3.0, 1.0])}, r"slots must be integers \[B\]; got float32 \(2,\)"),
        ({"slots": jnp.array([[3, 1]])}, r"slots must be integers \[B\]; got int32 \(1, 2\)"),
        ({"slots": [3, 1]}, r"slots must be an array \[B\]; got \[3, 1\]"),
        ({"has_initial_state": [True, True]}, r"has_initial_state must be an array \[B\]; got \[True, True\]"),
        ({"slots": np.array([2**32, 1])}, "slots must fit into int32, .*; got up to 4294967296: number them anew"),
        ({"slots": np.array([np.iinfo(np.int64).min, 1])}, "slots must fit into int32"),
        ({"slots": jnp.array([1, 1])}, r"no two rows may have one slot; got \[1, 1\]"),
        ({"has_initial_state": jnp.array([1, 1])}, r"has_initial_state must be bool \(2,\), .*; got int32 \(2,\)"),
        ({"has_initial_state": jnp.array([True])}, r"has_initial_state must be bool \(2,\), .*; got bool \(1,\)"),
        ({"recurrent_states": jnp.zeros((4, 4, 4, 3))}, r"every table must have as many slots; got .*'recurrent': 4"),
        ({"slots": jnp.array([3]), "has_initial_state": jnp.array([True])}, r"'q' must have shape \(2, .*; got \(1, "),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_together_is_refused(change, message):
    parameters, x, *_ = step_inputs()
    arguments = dict(zip(("conv_states", "recurrent_states"), tables(), strict=True))
    arguments |= {"slots": slots_of(3, 1), "has_initial_state": jnp.array([True, True])}
    with pytest.raises(ValueError, match=message):
        in_slots(partial(step, parameters, x), **(arguments | change))


def test_rows_of_padding_may_have_one_slot():
    def run(conv_state, recurrent_state):
        return (recurrent_state, conv_state, recurrent_state)

    _, *after = in_slots(run, *tables(), slots_of(-1, -1), jnp.array([False, False]))
    assert equal(after, tables())
