"""The causal convolution on one device: by hand, in stretches, of odd shapes, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.causal_conv import causal_conv


def drawn(B=2, T=9, D=3, W=4, dtype=jnp.float32):
    draw = np.random.default_rng(0)
    return tuple(jnp.asarray(draw.normal(size=shape), dtype) for shape in ((B, T, D), (D, W), (B, W - 1, D)))


def channel(*numbers):
    return jnp.array(numbers, jnp.float32)[None, :, None]


def test_three_tokens_by_hand():
    """The last tap is that of the token itself, and the last row of the state the token just before the first."""
    y, final_state = causal_conv(channel(1, 2, 3), jnp.array([[1.0, 10.0, 100.0]]), channel(7, 5))
    assert y.ravel().tolist() == [7 + 50 + 100, 5 + 10 + 200, 1 + 20 + 300]
    assert final_state.ravel().tolist() == [2, 3]


def test_a_sequence_that_is_shorter_than_the_state():
    y, final_state = causal_conv(channel(2), jnp.array([[1.0, 10.0, 100.0, 1000.0]]), channel(7, 5, 3))
    assert y.ravel().tolist() == [7 + 50 + 300 + 2000]
    assert final_state.ravel().tolist() == [5, 3, 2]


@pytest.mark.parametrize("cut", [0, 1, 2, 8])
def test_two_stretches_in_turn_are_the_whole(cut):
    x, weight, state = drawn()
    y, final_state = causal_conv(x, weight, state)
    first, between = causal_conv(x[:, :cut], weight, state)
    second, after = causal_conv(x[:, cut:], weight, between)
    np.testing.assert_allclose(jnp.concatenate([first, second], axis=1), y, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(after, final_state)


@pytest.mark.parametrize("shape", [(1, 1, 1, 4), (1, 1, 1, 1), (2, 5, 1, 1), (1, 2, 3, 4)])
def test_odd_shapes_have_outputs_and_gradients_of_theirs(shape):
    x, weight, state = drawn(*shape)

    @jax.jit
    def program(*inputs):
        outputs, pullback = jax.vjp(causal_conv, *inputs)
        return outputs, pullback((jnp.ones_like(x), jnp.zeros_like(state)))

    outputs, gradients = program(x, weight, state)
    assert [y.shape for y in outputs] == [x.shape, state.shape]
    assert [dx.shape for dx in gradients] == [x.shape, weight.shape, state.shape]
    np.testing.assert_allclose(gradients[0][:, -1], jnp.broadcast_to(weight[:, -1], x[:, -1].shape))
    tokens = jnp.concatenate([state, x], axis=1)  # the first tap reads the first T of these
    np.testing.assert_allclose(gradients[1][:, 0], tokens[:, : shape[1]].sum((0, 1)), rtol=1e-5)


def test_sums_are_wide_and_results_as_narrow_as_the_tokens():
    """The sum 1 + 2^-9 - (1 + 2^-8), where 1 + 2^-8 is a tap: in bf16 it would be 0. Nor is a weight in f32 rounded."""
    x, state = (jnp.array(numbers, jnp.bfloat16)[None, :, None] for numbers in ([2.0**-9, -1], [0, 1]))
    weight = jnp.array([[1, 1, 1 + 2.0**-8]], jnp.float32)
    (y, final_state), pullback = jax.vjp(causal_conv, x, weight, state)
    assert y.dtype == final_state.dtype == jnp.bfloat16
    assert y[0, 1, 0] == 2.0**-9 - 2.0**-8
    assert [dx.dtype for dx in pullback((y, final_state))] == [jnp.bfloat16, jnp.float32, jnp.bfloat16]


def test_no_tokens_leave_the_state_with_documents_and_without():
    x, weight, state = drawn(2, 0, 3, 4)
    for ids in (None, jnp.zeros((2, 0), jnp.int32)):
        y, final_state = causal_conv(x, weight, state, segment_ids=ids)
        assert y.shape == x.shape
        np.testing.assert_array_equal(final_state, state)


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: jnp.zeros((2, 9))}, r"x must be \[B, T, D\] and weight \[D, W\], D and W at least 1; got \(2, 9\)"),
        ({1: jnp.zeros((4, 3))}, r"weight \[D, W\], D and W at least 1; got \(2, 9, 3\) and \(4, 3\)"),
        ({1: jnp.zeros((3, 0))}, r"D and W at least 1; got \(2, 9, 3\) and \(3, 0\)"),
        ({0: jnp.zeros((2, 9, 0)), 1: jnp.zeros((0, 4))}, r"D and W at least 1; got \(2, 9, 0\) and \(0, 4\)"),
        ({1: jnp.zeros((3, 4), int)}, "x and weight must be floating point; got float32 and int32"),
        ({1: jnp.zeros((3, 1, 4))}, r"weight \[D, W\], .*; got \(2, 9, 3\) and \(3, 1, 4\)"),
        ({2: jnp.zeros((2, 4, 3))}, r"the W - 1 tokens before x, \(2, 3, 3\) with x .*; got \(2, 4, 3\)"),
        ({2: jnp.zeros((1, 3, 3))}, r"\(2, 3, 3\) with x \(2, 9, 3\) and weight \(3, 4\); got \(1, 3, 3\)"),
        ({2: jnp.zeros((2, 3, 3), jnp.bfloat16)}, "must have the dtype of x, float32; got bfloat16: cast it"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_together_is_refused(change, message):
    inputs = [change.get(i, x) for i, x in enumerate(drawn())]
    with pytest.raises(ValueError, match=message):
        causal_conv(*inputs)
