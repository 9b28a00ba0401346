"""The counter meets programs whose counts are known, and the counter of compiled programs where both can count."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from implementations.chunked import chunked
from implementations.context_parallel.reverse_fold import reverse_fold
from implementations.context_parallel.two_phase import two_phase
from implementations.pallas.composition import PALLAS
from parity.compiled.flops import flops
from parity.compiled.programs import Sizes, abstract, outputs_and_gradients
from parity.compiled.traced import Uncountable, Work, work
from parity.layouts import over
from parity.meshes import keywords
from parity.shapes import Shape

X = np.ones((16, 16), np.float32)
PRODUCT = Work(2 * 16**3, 3 * 4 * 16**2)
N, C, H, K, V = 8, 16, 2, 16, 8
SIZES = Sizes(N, C, K, V, 1, H)


def twice_in_a_loop(x):
    return jax.lax.scan(lambda h, _: (h @ x, None), x, length=2)[0]


def in_a_grid(x):
    def kernel(a, b, out):
        out[...] = a[...] @ b[...]

    return pl.pallas_call(
        kernel,
        grid=(2, 4),
        in_specs=[pl.BlockSpec((8, 16), lambda i, j: (i, 0)), pl.BlockSpec((16, 4), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((8, 4), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        interpret=True,
    )(x, x)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: x @ x, PRODUCT),
        (jax.jit(lambda x: jnp.sin(x @ x) + 1), PRODUCT),
        (twice_in_a_loop, PRODUCT.times(2)),
        (lambda x: jax.lax.cond(x[0, 0] > 0, lambda: x @ x @ x, lambda: x @ x), PRODUCT.times(2)),
        (lambda x: (x @ x, x @ (x + 1))[0], PRODUCT),
        (lambda x: jax.lax.linalg.triangular_solve(x, x, left_side=True), Work(16**3, 3 * 4 * 16**2)),
        # The first operand stays while the second one changes four times, twice.
        (in_a_grid, Work(2 * 16**3, 4 * (2 * 8 * 16 + 8 * 16 * 4 + 8 * 8 * 4))),
    ],
    ids=["product", "jit", "loop", "branches", "unused", "solve", "kernel"],
)
def test_a_program_whose_count_is_known(function, wanted):
    assert work(function, X) == wanted


def test_what_does_not_say_how_often_it_runs_is_not_counted():
    with pytest.raises(Uncountable, match="while"):
        work(lambda x: jax.lax.while_loop(lambda h: h[0, 0] < 9, lambda h: h @ x, x), X)


def asked(call, ranks, backward):
    shape = Shape("", 1, N * C * ranks, H, H, K, V, C)
    arrays = abstract(shape, "f32", over(ranks))
    told = {"chunk_size": C} | (keywords(over(ranks)) if call is not chunked and call is not PALLAS.call else {})
    call = functools.partial(call, **told)
    return (outputs_and_gradients(call), (arrays[:6], arrays[6:])) if backward else (call, arrays[:6])


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jax.lax.conv(x[None, None], x[None, None], (1, 1), "SAME"), "conv_general_dilated"),
        (lambda x: jax.lax.scan(lambda h, _: (jnp.linalg.cholesky(h), None), x, length=2)[0], "cholesky"),
        (lambda x: jnp.linalg.qr(x)[0], "qr|householder"),
        (lambda x: jnp.fft.fft(x), "fft"),
        (lambda x: jax.lax.ragged_dot(x, x[None], jnp.array([16])), "ragged_dot"),
        (lambda x: jnp.linalg.solve(x, x), "lu|custom_linear_solve"),
        (lambda x: jax.pure_callback(lambda y: y, x, x), "pure_callback"),
    ],
)
def test_what_is_no_such_product_is_refused_and_not_counted_as_none(function, name):
    with pytest.raises(Uncountable, match=name):
        work(function, X)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(
    ("call", "ranks"),
    [(chunked, 1), (two_phase, 4), (functools.partial(two_phase, map_of_rank=reverse_fold), 4)],
    ids=["chunked", "fold", "reverse_fold"],
)
def test_it_counts_what_the_compiled_program_does(call, ranks, backward):
    program, arguments = asked(call, ranks, backward)
    compiled = jax.jit(program).lower(*arguments).compile()
    assert work(program, *arguments).flops == flops(compiled.as_text()).total
