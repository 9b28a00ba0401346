"""What any kernel becomes is the sequential rule, forward and backward, whatever the kernel is."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from implementations.chunked import CHUNKED, chunked, prepare
from implementations.context_parallel.affine import fold
from implementations.context_parallel.any_kernel import context_parallel, map_in_one_run, map_in_two_runs
from implementations.context_parallel.conftest import assert_close, mesh_of, outputs_and_gradients
from implementations.context_parallel.exchange import EXCHANGES, ring
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.contract import Implementation
from implementations.sequential import SEQUENTIAL, sequential

pytestmark = pytest.mark.usefixtures("x64")

TOKENS = 40
KEYWORDS = {"scale": None, "chunk_size": 3}
OVER_FIVE = {"axes": ("context",), **KEYWORDS}


def square(inputs):
    """The inputs with K = V, which some kernels need."""
    q, k, v, g, beta, h0 = inputs(TOKENS)
    return q[..., :3], k[..., :3], v, g, beta, h0[:, :, :3]


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
@pytest.mark.parametrize("kernel", [CHUNKED, SEQUENTIAL], ids=lambda kernel: kernel.name)
def test_results_and_gradients_are_those_of_one_token_after_another(inputs, kernel, exchange):
    made = context_parallel(kernel, exchange=exchange)
    call = functools.partial(made.call, mesh=mesh_of(context=5), **OVER_FIVE)
    assert_close(outputs_and_gradients(call, inputs(TOKENS)), outputs_and_gradients(sequential, inputs(TOKENS)))


def test_a_kernel_without_unequal_head_sizes_is_never_given_any(inputs):
    def call(q, k, v, *rest, **keywords):
        assert q.shape[-1] == v.shape[-1]
        return chunked(q, k, v, *rest, **keywords)

    kernel = Implementation("square", call, supports=CHUNKED.supports - {"unequal_head_sizes"})
    call = functools.partial(context_parallel(kernel).call, mesh=mesh_of(context=5), **OVER_FIVE)
    assert_close(outputs_and_gradients(call, square(inputs)), outputs_and_gradients(sequential, square(inputs)))


@pytest.mark.parametrize("map_of", [map_in_one_run, map_in_two_runs])
def test_the_map_is_the_fold_of_the_chunks(inputs, map_of):
    x = square(inputs)
    run = functools.partial(chunked, **KEYWORDS)
    for found, wanted in zip(map_of(run, *x[:5]), fold(prepare(*x[:5], **KEYWORDS)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)


def test_gradients_are_those_that_the_kernel_brings(inputs):
    """Here twice what they are, in dv alone: each of the two runs has its own."""

    def vjp(*inputs_and_cotangents, **keywords):
        inputs, cotangents = inputs_and_cotangents[:6], inputs_and_cotangents[6:]
        dq, dk, dv, *rest = jax.vjp(functools.partial(chunked, **keywords), *inputs)[1](cotangents)
        return dq, dk, 2 * dv, *rest

    made = context_parallel(replace(CHUNKED, name="doubled", vjp=vjp))
    assert made.vjp is None
    call = functools.partial(made.call, mesh=mesh_of(context=5), **OVER_FIVE)
    wanted = outputs_and_gradients(sequential, inputs(TOKENS))
    wanted[4] = 2 * wanted[4]
    assert_close(outputs_and_gradients(call, inputs(TOKENS)), wanted)


def test_it_claims_what_the_kernel_claims():
    kernel = replace(CHUNKED, name="mine", arithmetic={"bf16": "bf16"}, supports={"ragged", "gradients"})
    made = context_parallel(kernel)
    assert (made.name, made.context_parallel, made.stages) == ("mine_over_ranks", True, None)
    assert (made.arithmetic, made.supports) == (kernel.arithmetic, kernel.supports)


def test_maps_and_states_are_exchanged_in_f32_where_inputs_are_bf16(inputs):
    seen = []

    def exchange(pair, h0, axes):
        seen.append({x.dtype.name for x in (*pair, h0)})
        return ring(pair, h0, axes)

    x = [y.astype("bfloat16") for y in inputs(TOKENS)]
    made = context_parallel(CHUNKED, exchange=exchange)
    o, final_state = made.call(*x, mesh=mesh_of(context=5), **OVER_FIVE)
    assert seen == [{"float32"}]
    assert (o.dtype, final_state.dtype) == ("bfloat16", "bfloat16")


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (TWO_PHASE, "two_phase is context parallel already"),
        (replace(CHUNKED, traceable=False, vjp=lambda *x, **keywords: x[:6]), "chunked cannot be traced by jax"),
    ],
)
def test_what_cannot_become_context_parallel_is_refused(kernel, says):
    with pytest.raises(ValueError, match=f"{says}: what becomes context parallel is a jax kernel for one device"):
        context_parallel(kernel)


def test_tokens_that_cannot_be_split_are_refused(inputs):
    with pytest.raises(ValueError, match=r"T must be a multiple of the number of ranks.*got T = 40, R = 3"):
        context_parallel(CHUNKED).call(*inputs(TOKENS), mesh=mesh_of(context=3), **OVER_FIVE)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_record_is_refused():
    with pytest.raises(TypeError, match="kernel must be an Implementation, which says what it supports; got <function"):
        context_parallel(CHUNKED.call)


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (lambda o, state: o, "it returned .*(Array|Tracer|float64)"),
        (lambda o, state: (o, jnp.swapaxes(state, 2, 3)), "and float64.* it returned"),
        (lambda o, state: (o, state.astype("bfloat16")), "bfloat16"),
        (lambda o, state: (o, state, state), "it returned"),
        (lambda o, state: (o, None), "None"),
    ],
    ids=["o alone", "state transposed", "state in bf16", "three", "no state"],
)
@pytest.mark.usefixtures("unchecked")
def test_a_kernel_that_returns_something_else_is_named(inputs, returned, got):
    """Nothing that an exchange makes of it is said in its place, and no cast hides it."""
    kernel = replace(CHUNKED, call=lambda *x, **keywords: returned(*CHUNKED.call(*x, **keywords)), stages=None)
    with pytest.raises(
        TypeError, match=f"(?s)chunked must return .o, final_state., like v and the initial state .*{got}"
    ):
        context_parallel(kernel).call(*inputs(TOKENS), mesh=mesh_of(context=5), **OVER_FIVE)
