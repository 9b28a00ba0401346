"""The scan kernel against `jax.lax.scan`: in f64, where what is off is the structure, and in the dtypes of users."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.chunked import Factors, scan
from implementations.pallas.interpreter import interpreted_as_on_a_tpu
from implementations.pallas.scan import end_of_walk, walk

# N, B, H, C, K, V
SHAPES = {"small": (3, 2, 3, 8, 16, 24), "one chunk of one head": (1, 1, 1, 16, 8, 8), "wide": (2, 1, 2, 8, 24, 16)}


def given(shape, dtype=jnp.float64):
    """A state in the dtype that sums are kept in, and factors of its chunks."""
    N, B, H, C, K, V = shape
    rng = np.random.default_rng(0)
    wide = jnp.promote_types(dtype, jnp.float32)

    def normal(*sizes, dtype=dtype):
        return jnp.asarray(0.3 * rng.standard_normal(sizes), dtype)

    h = normal(B, H, K, V, dtype=wide)
    sizes = {"w": (C, K), "u": (C, V), "q_decayed": (C, K), "k_decayed": (C, K), "attention": (C, C)}
    decay = jnp.asarray(np.exp(-rng.uniform(size=(N, B, H))), wide)
    return h, Factors(**{name: normal(N, B, H, *size) for name, size in sizes.items()}, decay=decay)


@functools.partial(jax.jit, static_argnums=0)
def answers(walk, h, chunks):
    """The result, that of the forward of its vjp, and all gradients for cotangents that every dtype can hold."""
    result, pullback = jax.vjp(walk, h, chunks)
    cotangents = [jnp.cos(jnp.arange(x.size, dtype=jnp.float32)).astype(jnp.bfloat16) for x in jax.tree.leaves(result)]
    same = [c.astype(x.dtype).reshape(x.shape) for c, x in zip(cotangents, jax.tree.leaves(result), strict=True)]
    return walk(h, chunks), result, pullback(jax.tree.unflatten(jax.tree.structure(result), same))


def assert_close(found, wanted, rtol):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        np.testing.assert_allclose(one, other, rtol=0, atol=rtol * np.abs(other).max())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_it_is_the_scan_and_so_are_its_gradients(shape):
    with jax.enable_x64(True):
        assert_close(answers(walk, *given(shape)), answers(scan, *given(shape)), rtol=1e-14)


@pytest.mark.parametrize("heads_forward", [1, 4, 5])
def test_heads_need_not_be_a_multiple_of_those_of_a_cell(heads_forward):
    """Six heads: beyond the last one a cell reads what is undefined, and writes nothing."""
    with jax.enable_x64(True):
        in_tiles = functools.partial(walk, heads_forward=heads_forward, heads_backward=heads_forward)
        found = answers(in_tiles, *given(SHAPES["small"]))
        assert_close(found, answers(walk, *given(SHAPES["small"])), rtol=1e-15)


def test_where_nothing_is_read_the_end_is_the_same_and_so_are_its_gradients():
    with jax.enable_x64(True):
        h, chunks = given(SHAPES["small"])
        found, wanted = (answers(end, h, chunks) for end in (end_of_walk, lambda *x: scan(*x)[0]))
        assert_close(found, wanted, rtol=1e-14)
        of_reads = found[2][1]
        assert not of_reads.q_decayed.any()
        assert not of_reads.attention.any()


@pytest.mark.parametrize(("dtype", "rtol"), [(jnp.float32, 1e-6), (jnp.bfloat16, 2e-2)])
def test_narrow_factors_keep_their_dtype_and_the_state_its_own(dtype, rtol):
    found = answers(walk, *given(SHAPES["small"], dtype))
    (final_state, o), _, (dh, d) = found
    assert {x.dtype for x in (o, *d[:-1])} == {jnp.dtype(dtype)}
    assert {x.dtype for x in (final_state, dh, d.decay)} == {jnp.dtype(jnp.float32)}
    h, chunks = given(SHAPES["small"], dtype)
    exact = answers(scan, h, jax.tree.map(lambda x: x.astype(jnp.float32), chunks))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        assert_close(one.astype(jnp.float32), other, rtol=rtol)


def test_what_stays_wide_beside_narrow_factors_is_not_rounded():
    """The sums over keys, forward and backward, have 16 bits of them where those of narrow ones have 8."""
    h, narrow = given(SHAPES["small"], jnp.bfloat16)
    _, exact = given(SHAPES["small"], jnp.float32)
    written_alone = narrow._replace(w=jnp.zeros_like(narrow.w), u=narrow.u.astype(jnp.float32))
    wide = written_alone._replace(k_decayed=exact.k_decayed)

    def end(walk, chunks):
        result, pullback = jax.vjp(lambda u: walk(h, chunks._replace(u=u))[0], chunks.u)
        return result, *pullback(jnp.sin(jnp.arange(h.size, dtype=jnp.float32)).reshape(h.shape))

    exactly = end(scan, jax.tree.map(lambda x: x.astype(jnp.float32), wide))
    assert_close(end(walk, wide), exactly, rtol=2**-15)
    rounded = end(walk, wide._replace(k_decayed=wide.k_decayed.astype(jnp.bfloat16)))
    for one, other in zip(rounded, exactly, strict=True):
        with pytest.raises(AssertionError):
            assert_close(one, other, rtol=2**-11)


def test_as_on_a_tpu_it_gives_the_same_bits():
    """No memory is read that nobody has written, no copy before it has come: with heads beyond the last one too."""
    in_tiles = functools.partial(walk, heads_forward=4, heads_backward=4)
    wanted = answers(in_tiles, *given(SHAPES["small"], jnp.float32))
    with interpreted_as_on_a_tpu():
        # Another function to jax, which would run what it has compiled before.
        found = answers(functools.partial(in_tiles), *given(SHAPES["small"], jnp.float32))
        found = jax.block_until_ready(found)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(one, other)


def grids(jaxpr):
    """Of the kernels in a jaxpr, by name."""
    found = {}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            found[equation.params["name"]] = equation.params["grid_mapping"].grid
        for x in equation.params.values():
            if hasattr(x, "eqns"):
                found |= grids(getattr(x, "jaxpr", x))
    return found


@pytest.mark.parametrize(
    ("chunk", "columns", "dtype", "wanted"),
    [
        (64, 128, jnp.float32, {"scan_forward": (4, 2), "scan_backward": (8, 2)}),
        (128, 128, jnp.float32, {"scan_forward": (4, 2), "scan_backward": (8, 2)}),
        # A row of 64 takes as much of VMEM as one of 128.
        (256, 64, jnp.float32, {"scan_forward": (8, 2), "scan_backward": (16, 2)}),
        # Of [v | 0] eight heads are more than a TPU takes.
        (128, 256, jnp.bfloat16, {"scan_forward": (5, 2), "scan_backward": (8, 2)}),
        (128, 256, jnp.float32, {"scan_forward": (7, 2), "scan_backward": (11, 2)}),
    ],
)
def test_a_cell_has_as_many_heads_as_fit(chunk, columns, dtype, wanted):
    shape = (2, 1, 32, chunk, min(columns, 128), columns)
    h, chunks = jax.eval_shape(lambda: given(shape, dtype))
    gradient = jax.grad(lambda *x: sum(jnp.sum(y) for y in walk(*x)).astype(jnp.float32))
    assert grids(jax.make_jaxpr(gradient)(h, chunks).jaxpr) == wanted
