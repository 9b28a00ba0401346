"""Padding of the layer: whatever stands in it, no bit of anything else changes, and real tokens are what they were."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.causal_conv import causal_conv
from implementations.context_parallel.conftest import mesh_of
from implementations.context_parallel.halo_conv import halo_conv
from implementations.layer import gated_delta_net
from implementations.layer_padding import conv_of_real_tokens, of_real_tokens
from implementations.layer_sizes import Sizes
from implementations.test_layer import RULE, THREE, B, T, U, assert_close, drawn, jit, layer

# By row: in front, in between, behind; and everywhere.
MASK = np.array([[0, 0, 1, 1, 0, 1, 1, 1, 0, 0, 1], [1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0]], dtype=bool)


@jit
def outputs_and_gradients(inputs, cotangents, **more):
    outputs, pullback = jax.vjp(partial(gated_delta_net, rule=RULE, **more), *inputs)
    return outputs, pullback(cotangents)


def with_padding_of(fill, inputs, mask=MASK):
    parameters, x, *states = inputs
    return parameters, jnp.where(mask[..., None], x, fill), *states


@pytest.mark.usefixtures("x64")
def test_real_tokens_and_states_are_those_without_padding():
    """Row by row, for rows may have padding of different lengths."""
    parameters, x, conv_state, recurrent_state = with_padding_of(jnp.nan, drawn(THREE))
    y, conv, recurrent = jit(partial(gated_delta_net, rule=RULE))(
        parameters, x, conv_state, recurrent_state, mask=jnp.asarray(MASK)
    )
    assert np.all(np.asarray(y)[~MASK] == 0)
    for row in range(B):
        states = jax.tree.map(lambda state, row=row: state[row : row + 1], (conv_state, recurrent_state))
        wanted_y, *wanted = layer(parameters, x[row : row + 1, MASK[row]], *states)
        found = jax.tree.map(lambda state, row=row: state[row : row + 1], [conv, recurrent])
        assert_close((y[row : row + 1, MASK[row]], *found), (wanted_y, *wanted))


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.usefixtures("x64")
def test_no_bit_depends_on_what_stands_in_padding(documents):
    """Nor on its cotangents; and padding has no gradient."""
    inputs, (_, dy, *dstates) = drawn(THREE), drawn(THREE, seed=1)
    found = []
    for fill in (0.0, 1e300, jnp.nan, jnp.inf):
        ids = jnp.where(MASK, jnp.asarray([0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2]), 0 if fill == 0 else 7)
        more = {"mask": jnp.asarray(MASK)} | ({"segment_ids": ids} if documents else {})
        cotangents = jnp.where(MASK[..., None], dy, fill), *dstates
        found.append(outputs_and_gradients(with_padding_of(fill, inputs), cotangents, **more))
    for other in found[1:]:
        for a, b in zip(jax.tree.leaves(found[0]), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)
    (y, *_), (_, dx, *_) = found[-1]
    assert np.all(np.asarray(y)[~MASK] == 0)
    assert np.all(np.asarray(dx)[~MASK] == 0)
    assert np.all(np.asarray(dx)[MASK] != 0)


@pytest.mark.usefixtures("x64")
def test_a_row_of_nothing_but_padding_leaves_its_states():
    inputs = drawn(THREE)
    mask = jnp.asarray(MASK).at[1].set(False)
    y, conv, recurrent = jit(partial(gated_delta_net, rule=RULE))(*inputs, mask=mask)
    assert not np.any(y[1])
    for found, given in zip(jax.tree.leaves((conv, recurrent)), jax.tree.leaves(tuple(inputs[2:])), strict=True):
        np.testing.assert_array_equal(found[1], given[1])


@pytest.mark.usefixtures("x64")
def test_without_padding_a_mask_changes_nothing():
    inputs = drawn(THREE)
    assert_close(layer(*inputs, mask=jnp.ones((B, T), bool)), layer(*inputs), ulps=4)


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.usefixtures("x64")
def test_other_kernels(width):
    draw = np.random.default_rng(0)
    x, weight, state = (jnp.asarray(draw.normal(size=shape)) for shape in ((B, T, 3), (3, width), (B, width - 1, 3)))
    y, after = jit(conv_of_real_tokens)(jnp.where(MASK[..., None], x, 0), weight, state, mask=jnp.asarray(MASK))
    for row in range(B):
        wanted = causal_conv(x[row : row + 1, MASK[row]], weight, state[row : row + 1])
        assert_close((y[row : row + 1, MASK[row]], after[row : row + 1]), wanted, ulps=4, u=U)


def test_padding_begins_no_document_and_ends_none():
    ids = jnp.array([[9, 3, 9, 3, 4, 9, 9, 3, 9]])
    mask = jnp.array([[0, 1, 0, 1, 1, 0, 0, 1, 0]], dtype=bool)
    assert of_real_tokens(ids, mask).tolist() == [[3, 3, 3, 3, 4, 4, 4, 3, 3]]
    assert of_real_tokens(ids, jnp.zeros_like(mask)).tolist() == [[9] * 9]


REFUSED = {
    "integers": (jnp.ones((B, T), jnp.int32), r"mask must be bool \[B, T\] = \(2, 11\), .*; got int32 \(2, 11\)"),
    "another T": (jnp.ones((B, T + 1), bool), r"mask must be bool .*; got bool \(2, 12\)"),
    "no rows": (jnp.ones(T, bool), r"mask must be bool .*; got bool \(11,\)"),
    "a list": ([[True] * T] * B, r"mask must be bool .*; got \[\[True"),
}


@pytest.mark.usefixtures("x64")
def test_the_rule_gets_zeros_for_padding():
    """Of all five: no rule needs to know of a mask."""
    given = {}

    def rule(*inputs):
        given.update(zip("qkvgb", inputs, strict=False))
        return RULE(*inputs)

    gated_delta_net(*with_padding_of(np.nan, drawn(THREE)), rule=rule, mask=jnp.asarray(MASK))
    assert len(given) == 5
    for x in given.values():
        assert np.all(np.asarray(x)[~MASK] == 0)
        assert np.all(np.any(np.asarray(x)[MASK] != 0, axis=-1))


@pytest.mark.parametrize(("mask", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.usefixtures("unchecked")
def test_a_mask_is_a_bool_for_each_token(mask, message):
    with pytest.raises(ValueError, match=message):
        gated_delta_net(*drawn(THREE, dtype=jnp.float32), rule=RULE, mask=mask)


def test_over_ranks_padding_is_refused():
    convolution = partial(halo_conv, mesh=mesh_of(a=2), axes=("a",))
    message = r"with a mask the convolution must be causal_conv.*put padding behind the tokens and leave the mask out"
    with pytest.raises(ValueError, match=message):
        gated_delta_net(
            *drawn(Sizes(7, 2, 4, 4, 3, 4), tokens=12, dtype=jnp.float32),
            rule=RULE,
            convolution=convolution,
            mask=jnp.ones((B, 12), bool),
        )
