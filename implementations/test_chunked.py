"""The chunked form: sums of gates that neither overflow nor cancel, padding that does nothing, any size of chunk."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.chunked import chunk_step, chunked, prepare, segment_sums, stages
from implementations.contract import STAGES
from implementations.sequential import sequential

U = 2.0**-53

pytestmark = pytest.mark.usefixtures("x64")

GATES = {
    "weak": [-0.01, -0.3, -1e-9, -0.7, -0.02, -1e-17],
    "exact zeros": [0.0, 0.0, -0.5, 0.0, 0.0, -0.25],
    "one strong": [-0.1, -30.0, -1e-17, -0.3, 0.0, -1e-20],
    "strong": [-1.5, -20.0, -7.3, -19.9, -3.0, -11.0],
    "underflows": [-1.0, -800.0, -2.0, -800.0, -3e4, -0.5],
}
each_gates = pytest.mark.parametrize("gates", GATES.values(), ids=GATES.keys())


# segment_sums


def sums_of(gates):
    """`sum of g over j < t <= i` by definition, each rounded once."""
    return [
        [math.fsum(gates[j + 1 : i + 1]) if j <= i else -math.inf for j in range(len(gates))] for i in range(len(gates))
    ]


@each_gates
def test_segment_sums_are_the_sums_of_the_gates_between(gates):
    found, wanted = np.asarray(segment_sums(jnp.array(gates))), np.array(sums_of(gates))
    below = np.tri(len(gates), dtype=bool)
    np.testing.assert_allclose(found[below], wanted[below], rtol=len(gates) * U, atol=0)
    assert np.all(found[~below] == -np.inf)


def test_a_gate_behind_a_strong_decay_keeps_its_digits():
    """A difference of cumulative sums would return 0: 1e-17 is lost beside 30."""
    assert segment_sums(jnp.array([-30.0, -1e-17]))[1, 0] == -1e-17


@each_gates
def test_the_gradient_of_the_decays_is_finite_and_accurate(gates):
    """Of `sum W_ij exp(G_i - G_j)`: by g_t it is the sum over j < t <= i alone, and no term may cancel another."""
    size, sums = len(gates), sums_of(gates)
    weights = np.random.default_rng(0).uniform(1, 2, (size, size))
    found = jax.grad(lambda g: jnp.sum(weights * jnp.exp(segment_sums(g))))(jnp.array(gates))
    wanted = [
        math.fsum(weights[i, j] * math.exp(sums[i][j]) for j in range(t) for i in range(t, size)) for t in range(size)
    ]
    # exp turns an absolute error of G into a relative one, and a sum of six gates errs by at most 6 u max|G|.
    np.testing.assert_allclose(
        found, wanted, rtol=8 * U * (1 + abs(max(gates, key=abs)) * (max(wanted) > 0)), atol=5e-324
    )


def test_leading_axes_are_separate_sequences():
    gates = np.stack([list(GATES.values())[:3], list(GATES.values())[2:]])
    found = segment_sums(jnp.array(gates))
    assert found.shape == (2, 3, 6, 6)
    assert np.array_equal(found[1, 2], segment_sums(jnp.array(gates[1, 2])))


# Padding


def test_a_ragged_tail_is_as_if_padded_with_zeros_by_the_caller(inputs):
    *sequences, h0 = inputs(37)
    padded = [jnp.pad(x, [(0, 0), (0, 11), *[(0, 0)] * (x.ndim - 2)]) for x in sequences]
    by_16 = jax.jit(functools.partial(chunked, chunk_size=16))
    (o, final_state), (padded_o, padded_final_state) = by_16(*sequences, h0), by_16(*padded, h0)
    assert np.array_equal(o, padded_o[:, :37])
    assert np.array_equal(final_state, padded_final_state)
    assert np.all(padded_o[:, 37:] == 0)


def test_padded_tokens_write_nothing_and_do_not_decay(inputs):
    q, k, v, g, beta, _ = inputs(37)
    factors = jax.jit(functools.partial(prepare, scale=None, chunk_size=16))(q, k, v, g, beta)
    assert factors.w.shape[0] == 3
    for x in (factors.w, factors.u, factors.q_decayed, factors.k_decayed, factors.attention):
        assert np.all(np.asarray(x)[-1, :, :, 5:] == 0)
        assert np.any(np.asarray(x)[-1, :, :, 4] != 0)
    np.testing.assert_allclose(factors.decay[-1], np.exp(np.sum(g[:, 32:], axis=1)), rtol=40 * U)


def test_a_chunk_of_padding_returns_the_state_bit_for_bit(inputs):
    @jax.jit
    def padding_only(h, *sequences):
        factors = prepare(*(0 * x for x in sequences), scale=None, chunk_size=8)
        return chunk_step(h, jax.tree.map(lambda x: x[0], factors))

    *sequences, h0 = inputs(8)
    h, o = padding_only(h0, *sequences)
    assert np.array_equal(h, h0)
    assert np.all(o == 0)


# Chunks of any size


def outputs_and_gradients(function, x, chunk_size):
    """One program for both outputs and all six gradients, with random cotangents."""
    draw = np.random.default_rng(1)
    cotangents = jax.device_put((draw.normal(size=x[2].shape), draw.normal(size=x[5].shape)))

    @jax.jit
    def program(*x):
        outputs, pullback = jax.vjp(lambda *x: function(*x, chunk_size=chunk_size), *x)
        return *outputs, *pullback(cotangents)

    return [np.asarray(y) for y in program(*x)]


@pytest.mark.parametrize(("tokens", "chunk_sizes"), [(40, (1, 7, 64)), (1, (16,))], ids=["many", "one token"])
def test_results_do_not_depend_on_the_chunk(inputs, tokens, chunk_sizes):
    """Chunks of one token, chunks of which the last is short, and a chunk that is longer than the sequence."""
    x = inputs(tokens)
    wanted = outputs_and_gradients(sequential, x, 64)
    for chunk_size in chunk_sizes:
        found = outputs_and_gradients(chunked, x, chunk_size)
        for a, b in zip(found, wanted, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=0, atol=64 * U * np.max(np.abs(b)))


def test_a_key_head_serves_consecutive_value_heads(inputs):
    @jax.jit
    def program(q, k, *others):
        repeated, tiled = (jnp.repeat(x, 2, axis=2) for x in (q, k)), (jnp.tile(x, (1, 1, 2, 1)) for x in (q, k))
        return [chunked(*keys, *others, chunk_size=16) for keys in ((q, k), repeated, tiled)]

    for grouped, repeated, tiled in zip(*program(*inputs()), strict=True):
        np.testing.assert_allclose(grouped, repeated, rtol=1e-13, atol=1e-14)
        assert not np.allclose(grouped, tiled)


@pytest.mark.parametrize("function", [chunked, sequential])
def test_the_scale_multiplies_what_is_read_and_nothing_else(inputs, function):
    program = jax.jit(lambda *x: (function(*x), function(*x, scale=1.5)))
    (o, final_state), (scaled_o, scaled_final_state) = program(*inputs())
    np.testing.assert_allclose(scaled_o, o * (1.5 * 4**0.5), rtol=1e-12, atol=1e-14)
    assert np.array_equal(scaled_final_state, final_state)


@pytest.mark.parametrize("function", [chunked, sequential])
def test_outputs_have_the_dtypes_of_v_and_of_the_state(inputs, function):
    narrow = [
        x.astype(jnp.bfloat16 if name in "qkv" else jnp.float32) for name, x in zip("qkvgbh", inputs(), strict=True)
    ]
    o, final_state = jax.eval_shape(function, *narrow)
    assert (o.dtype, final_state.dtype) == (jnp.bfloat16, jnp.float32)


def test_the_recurrence_can_be_replaced(inputs):
    def forgetful(h, chunks):
        return jax.lax.scan(lambda h, chunk: chunk_step(0 * h, chunk), h, chunks)

    *sequences, h0 = inputs(24)
    program = jax.jit(lambda *x: (chunked(*x, chunk_size=8, walk=forgetful), chunked(*x, chunk_size=8)))
    (o, final_state), (remembered, _) = program(*sequences, h0)
    last_8 = [x[:, 16:] for x in sequences]
    alone_o, alone_final_state = jax.jit(functools.partial(chunked, chunk_size=8))(*last_8, 0 * h0)
    np.testing.assert_allclose(o[:, 16:], alone_o, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(final_state, alone_final_state, rtol=1e-12, atol=1e-14)
    assert not np.allclose(o[:, 16:], remembered[:, 16:])


@pytest.mark.parametrize("function", [chunked, sequential])
@pytest.mark.usefixtures("unchecked")
def test_inputs_are_checked(inputs, function):
    q, k, v, g, beta, h0 = inputs()
    with pytest.raises(ValueError, match="initial_state must have shape"):
        function(q, k, v, g, beta, jnp.swapaxes(h0, 2, 3))
    with pytest.raises(ValueError, match="chunk_size must be"):
        function(q, k, v, g, beta, h0, chunk_size=0)


# Stages


def test_stages_are_what_it_computes_on_the_way(inputs):
    x = inputs(37)
    found = jax.jit(functools.partial(stages, chunk_size=16))(*x)
    sizes = {"R": 1, "N": 3, "B": 2, "Hv": 4, "C": 16, "K": 4, "V": 3}
    assert found.keys() == {"S", "T", "w", "u", "entering_chunk"}
    for name, stage in found.items():
        assert stage.shape == tuple(sizes[axis] for axis in STAGES[name].split())
    np.testing.assert_allclose(found["T"] @ (jnp.eye(16) + found["S"]) - jnp.eye(16), 0 * found["S"], atol=1e-13)
    factors = jax.jit(functools.partial(prepare, scale=None, chunk_size=16))(*x[:5])
    np.testing.assert_allclose(found["w"][0], factors.w, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found["u"][0], factors.u, rtol=0, atol=1e-13)
    for chunk, tokens in enumerate((0, 16, 32)):
        state = chunked(*(y[:, :tokens] for y in x[:5]), x[5])[1] if tokens else x[5]
        np.testing.assert_allclose(found["entering_chunk"][0, chunk], state, rtol=0, atol=1e-13)
