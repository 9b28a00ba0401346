"""The walk reaches every product, changes nothing else, and says what it cannot enter."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.sharding import AxisType, PartitionSpec

from parity.arithmetic import CannotEnter, emulate

X = jnp.asarray(np.random.default_rng(0).normal(size=(16, 16)), jnp.float32)


@jax.custom_vjp
def by_vjp(x):
    return x @ x


by_vjp.defvjp(lambda x: (x @ x, x), lambda x, d: (d @ x,))


@jax.custom_jvp
def by_jvp(x):
    return x @ x


by_jvp.defjvp(lambda x, d: (x[0] @ x[0], d[0] @ x[0]))


def square_in_a_kernel(x, y):
    y[...] = jnp.dot(x[...], x[...]) + 0 * pl.program_id(0)


def in_a_kernel(x):
    block = pl.BlockSpec(x.shape, lambda i: (0, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        square_in_a_kernel, grid=(1,), in_specs=[block], out_specs=block, out_shape=shape, interpret=True
    )(x)


def over_two_ranks(x):
    mesh = jax.make_mesh((2,), ("context",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    spec = PartitionSpec("context")

    def local(x):
        return jax.lax.scan(lambda h, _: (h + jax.lax.psum(x.T @ x, "context"), None), 0 * x.T @ x, length=1)[0]

    return jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=PartitionSpec(), check_vma=False)(x)


EVERYWHERE = {
    "plain": lambda x: x @ x,
    "jit": jax.jit(lambda x: x @ x),
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(x @ x)),
    "cond": lambda x: jax.lax.cond(x[0, 0] < 9, lambda y: y @ y, lambda y: y, x),
    "while": lambda x: jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] @ x / 4), (0, x))[1],
    "scan": lambda x: jax.lax.scan(lambda h, y: (h @ x / 4, y @ h[0]), x, x, length=16, reverse=True),
    "custom_vjp": by_vjp,
    "custom_jvp": by_jvp,
    "pallas": in_a_kernel,
    "two_ranks": over_two_ranks,
}
each = pytest.mark.parametrize("function", EVERYWHERE.values(), ids=EVERYWHERE)
differentiable = pytest.mark.parametrize(
    "function", [f for name, f in EVERYWHERE.items() if name not in ("while", "pallas")]
)


def gradient_of(function):
    return jax.grad(lambda x: sum(jnp.sum(jnp.cos(y)) for y in jax.tree.leaves(function(x))))


def same_bits(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


@each
def test_identity_changes_no_bit(function):
    assert same_bits(emulate(function, "identity")(X), function(X))
    assert jax.tree.structure(emulate(function, "identity")(X)) == jax.tree.structure(function(X))


@each
def test_every_product_is_reached(function):
    """On a CPU products are in f32: in one pass of bf16 they are others, and in six almost the same."""
    exact = jax.tree.leaves(function(X))
    coarse, fine = (jax.tree.leaves(emulate(function, policy)(X)) for policy in ("default", "highest"))
    assert not any(np.allclose(x, y, rtol=0, atol=1e-4) for x, y in zip(exact, coarse, strict=True))
    for x, y in zip(exact, fine, strict=True):
        np.testing.assert_allclose(y, x, rtol=0, atol=3e-6 * np.abs(x).max())


@differentiable
def test_every_product_of_a_gradient_is_reached(function):
    exact, coarse, fine = (
        gradient_of(function)(X),
        emulate(gradient_of(function), "default")(X),
        emulate(gradient_of(function), "highest")(X),
    )
    assert not np.allclose(coarse, exact, rtol=0, atol=1e-4)
    np.testing.assert_allclose(fine, exact, rtol=0, atol=3e-5 * np.abs(exact).max())
    assert same_bits(emulate(gradient_of(function), "identity")(X), exact)


def test_a_gradient_is_that_of_the_custom_rule():
    """It is no derivative of the function: `by_vjp` has another rule on purpose."""
    ones = jnp.ones_like(X)
    gradient = emulate(lambda x: jax.vjp(by_vjp, x)[1](ones)[0], "highest")(X)
    np.testing.assert_allclose(gradient, ones @ X, rtol=0, atol=1e-4)


def test_it_can_be_compiled():
    assert same_bits(jax.jit(emulate(jax.jit(lambda x: x @ x), "identity"))(X), jax.jit(lambda x: x @ x)(X))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float64])
def test_other_dtypes_are_left_alone(dtype):
    with jax.enable_x64(True):
        x = X.astype(dtype)
        assert same_bits(emulate(lambda x: x @ x, "default")(x), x @ x)


def test_the_precision_that_is_written_is_the_one_that_is_taken():
    def written(precision):
        return lambda x: jnp.dot(x, x, precision=precision)

    for precision in ("default", "high", "highest"):
        assert same_bits(emulate(written(precision))(X), emulate(written("highest"), precision)(X))


def test_what_it_cannot_enter_is_named():
    def solve(x):
        return jax.lax.custom_linear_solve(lambda y: x @ y, x[0], lambda matvec, y: matvec(y))

    with pytest.raises(CannotEnter, match="custom_linear_solve"):
        emulate(solve)(X)


def test_a_policy_that_there_is_not_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users call it
    with pytest.raises(ValueError, match="policy must be"):
        emulate(lambda x: x, "bf16x3")
