"""A transformation is the same mistake whoever computes, and its gradients are those of the whole."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.contract import Implementation
from parity.faults.around import Gradients, Inputs, Outputs, around, around_gradients

KEYWORDS = {"scale": None, "chunk_size": 16}


def call(q, k, v, g, beta, initial_state, *, scale, chunk_size):
    """Any function of the six inputs in which all of them matter, and nonlinearly."""
    o = v * jnp.exp(g)[..., None] * jnp.sum(q * k, axis=(2, 3))[..., None, None] + jnp.sin(beta)[..., None]
    return o, initial_state**2 * jnp.sum(beta)


def vjp(*arguments, scale, chunk_size):
    """Of no use to jax: NumPy in, NumPy out."""
    assert not any(isinstance(x, jax.core.Tracer) for x in arguments)
    _, pullback = jax.vjp(lambda *x: call(*x, **KEYWORDS), *(jnp.asarray(x) for x in arguments[:6]))
    return tuple(np.asarray(x) for x in pullback(tuple(jnp.asarray(x) for x in arguments[6:])))


def call_of_numpy(*inputs, scale, chunk_size):
    return tuple(np.asarray(x) for x in call(*(jnp.asarray(x) for x in inputs), **KEYWORDS))


OF_JAX = Implementation("of_jax", call)
OF_NUMPY = Implementation("of_numpy", call_of_numpy, vjp=vjp, traceable=False)


@pytest.fixture
def arguments():
    draw = np.random.default_rng(0)
    sizes = [(2, 5, 2, 3), (2, 5, 2, 3), (2, 5, 4, 6), (2, 5, 4), (2, 5, 4), (2, 4, 3, 6), (2, 5, 4, 6), (2, 4, 3, 6)]
    return [jnp.asarray(draw.normal(size=size), jnp.float32) for size in sizes]


def gradients(implementation, arguments):
    if implementation.vjp is not None:
        return implementation.vjp(*arguments, **KEYWORDS)
    return jax.vjp(lambda *x: implementation.call(*x, **KEYWORDS), *arguments[:6])[1](tuple(arguments[6:]))


def tiled(x, setting):
    return x._replace(q=jnp.tile(x.q, (1, 1, 2, 1)), k=jnp.tile(x.k, (1, 1, 2, 1)), g=jnp.tanh(x.g))


def bent(x, setting):
    return Outputs(jnp.cos(x.o), x.final_state * setting.chunk_size)


@pytest.mark.parametrize("wrap", [around(), around(tiled), around(outputs=bent), around(tiled, bent)])
def test_gradients_through_a_vjp_of_the_records_own_are_those_of_jax(wrap, arguments):
    of_jax, of_numpy = wrap(OF_JAX), wrap(OF_NUMPY)
    for one, other in zip(
        of_jax.call(*arguments[:6], **KEYWORDS), of_numpy.call(*arguments[:6], **KEYWORDS), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    for one, other in zip(gradients(of_jax, arguments), gradients(of_numpy, arguments), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_stages_are_those_of_the_changed_inputs(arguments):
    record = replace(OF_JAX, stages=lambda *x, **keywords: {"S": x[3]})
    assert around(tiled)(OF_JAX).stages is None
    found = around(tiled)(record).stages(*arguments[:6], **KEYWORDS)
    np.testing.assert_array_equal(found["S"], jnp.tanh(arguments[3]))


def test_a_record_that_jax_differentiates_still_is():
    assert around(tiled)(OF_JAX).vjp is None


@pytest.mark.parametrize("implementation", [OF_JAX, OF_NUMPY], ids=["of_jax", "of_numpy"])
def test_gradients_are_changed_and_outputs_are_not(implementation, arguments):
    def twice(pullback, inputs, cotangents, setting):
        assert isinstance(inputs, Inputs)
        right = pullback(inputs, cotangents)
        return right._replace(dv=2 * right.dv)

    wrapped = around_gradients(twice)(implementation)
    right, found = (Gradients(*gradients(x, arguments)) for x in (implementation, wrapped))
    np.testing.assert_allclose(found.dv, 2 * right.dv, rtol=1e-6)
    np.testing.assert_allclose(found.dbeta, right.dbeta, rtol=1e-6)
    assert wrapped.call is implementation.call


def test_a_setting_counts_the_ranks_of_the_axes_that_are_used(arguments):
    seen = []

    def note(x, setting):
        seen.append(setting)
        return x

    mesh = jax.make_mesh((2, 4), ("data", "context"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    over_ranks = replace(OF_JAX, call=lambda *x, mesh, axes, **rest: call(*x, **rest), context_parallel=True)
    around(note)(over_ranks).call(*arguments[:6], mesh=mesh, axes=("context",), **KEYWORDS)
    around(note)(OF_JAX).call(*arguments[:6], **KEYWORDS)
    assert [(x.ranks, x.scale, x.chunk_size) for x in seen] == [(4, None, 16), (1, None, 16)]
