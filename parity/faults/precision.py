"""Faults of precision alone: the algebra is right, and less is computed than is claimed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from parity.faults.around import Inputs, Outputs, Setting, around
from parity.faults.chunk import D_FROM_G, INVERSE, WRITTEN, D, G
from parity.faults.edits import Edit
from parity.faults.fault import LEAST, STRUCTURAL, Fault

_chunked = partial(Edit, "implementations.chunked")
_inversion = partial(Edit, "implementations.ut_inversion.substitution")
_affine = partial(Edit, "implementations.context_parallel.affine")
_exchange = partial(Edit, "implementations.context_parallel.exchange")
_arithmetic = partial(Edit, "implementations.arithmetic")

WEAK = ("long_memory", "typical")
_EINSUM = "return jnp.einsum(subscripts, *operands, precision=jax.lax.Precision.HIGHEST)"


def _rounded(x: Array, dtype: Any = jnp.bfloat16) -> Array:
    """Its cotangent too. Not by two casts, which a compiler may drop: it may be more precise than it is asked to be."""
    narrow = jnp.finfo(dtype)
    return jax.lax.reduce_precision(x, narrow.nexp, narrow.nmant)


def _in_source(x: str, dtype: str = "bfloat16") -> str:
    """The same as an expression."""
    narrow = jnp.finfo(dtype)
    return f"jax.lax.reduce_precision({x}, {narrow.nexp}, {narrow.nmant})"


def _given(name: str, cause: str, change: Callable[[Inputs], Inputs], quantity: str = "o", **rest: object) -> Fault:
    def inputs(x: Inputs, setting: Setting) -> Inputs:
        return change(x)

    return _wrong(name, cause, quantity, wrap=around(inputs), **rest)


def _wrong(name: str, cause: str, quantity: str, *edits: Edit, **rest: object) -> Fault:
    """In f32 unless said otherwise."""
    where = {"regimes": WEAK, "dtype": "f32", "margin": LEAST} | rest
    return Fault(name, cause, "precision", quantity, edits=edits, **where)  # type: ignore[arg-type]


def _in_f32(x: Inputs, setting: Setting) -> Inputs:
    return Inputs(*(y.astype(jnp.float32) for y in x))


def _back_in_f64(x: Outputs, setting: Setting) -> Outputs:
    return Outputs(*(y.astype(jnp.float64) for y in x))


def _outputs_in_bf16(x: Outputs, setting: Setting) -> Outputs:
    return Outputs(*(_rounded(y) for y in x))


INPUTS = (
    _given(
        "beta_in_bf16", "beta is rounded to bf16", lambda x: x._replace(beta=_rounded(x.beta)), source="sglang #38975"
    ),
    _given(
        "gate_in_bf16",
        "the gate is rounded to bf16",
        lambda x: x._replace(g=_rounded(x.g)),
        regimes=("typical", "correlated_keys"),
        source="vllm #42076",
    ),
    _given("keys_in_bf16", "keys are rounded to bf16", lambda x: x._replace(k=_rounded(x.k))),
    _given("values_in_bf16", "values are rounded to bf16", lambda x: x._replace(v=_rounded(x.v))),
    _given("initial_state_in_bf16", "the initial state is rounded to bf16", lambda x: x._replace(h0=_rounded(x.h0))),
    _given(
        "initial_state_in_fp16",
        "the initial state is rounded to fp16",
        lambda x: x._replace(h0=_rounded(x.h0, jnp.float16)),
    ),
    _given(
        "gate_in_bf16_like_the_tokens",
        "the gate is rounded to bf16 where the tokens are bf16",
        lambda x: x._replace(g=_rounded(x.g)),
        quantity="dg",
        dtype="bf16",
    ),
    _given(
        "beta_in_bf16_like_the_tokens",
        "beta is rounded to bf16 where the tokens are bf16",
        lambda x: x._replace(beta=_rounded(x.beta)),
        quantity="final_state",
        dtype="bf16",
    ),
    _given(
        "initial_state_in_bf16_like_the_tokens",
        "the initial state is rounded to bf16 where the tokens are bf16",
        lambda x: x._replace(h0=_rounded(x.h0)),
        quantity="final_state",
        regimes=("long_memory",),
        dtype="bf16",
    ),
)

ARITHMETIC = (
    _wrong(
        "f64_in_f32",
        "f64 inputs are computed on in f32",
        "o",
        wrap=around(_in_f32, _back_in_f64),
        dtype="f64",
        margin=STRUCTURAL,
    ),
    _wrong(
        "accumulation_in_f32",
        "sums are accumulated in f32 where the inputs are f64",
        "o",
        _arithmetic("return jnp.promote_types(dtype, jnp.float32)", "return jnp.dtype(jnp.float32)"),
        dtype="f64",
        margin=STRUCTURAL,
    ),
    _wrong(
        "products_in_one_bf16_pass",
        "every product is one bf16 pass of a matrix unit",
        "o",
        _arithmetic(
            _EINSUM,
            f"operands = tuple({_in_source('x')} for x in operands)\n    {_EINSUM}",
        ),
        source="maxtext #4510",
    ),
    _wrong(
        "inverse_in_one_bf16_pass",
        "the products of the inverse are one bf16 pass of a matrix unit",
        "o",
        _inversion(
            INVERSE,
            f"narrow = lambda x: {_in_source('x')}\n"
            "    power, T = -jnp.tril(S, -1), identity - jnp.tril(S, -1)\n"
            "    for _ in range(3):\n"
            "        power = narrow(power) @ narrow(power)\n"
            "        T = T + narrow(T) @ narrow(power)\n"
            "    return T",
        ),
        regimes=("typical", "correlated_keys"),
    ),
    _wrong(
        "state_in_bf16",
        "the state is kept in bf16 between chunks",
        "o",
        _chunked(WRITTEN, f"h = {_in_source('h')}\n    {WRITTEN}"),
    ),
    _wrong(
        "state_in_fp16",
        "the state is kept in fp16 between chunks",
        "o",
        _chunked(WRITTEN, f"h = {_in_source('h', 'float16')}\n    {WRITTEN}"),
    ),
    _wrong(
        "cumulative_gate_in_bf16",
        "the cumulative gate is summed in bf16",
        "o",
        _chunked(G, "G = jnp.cumsum(g.astype(jnp.bfloat16), axis=-1).astype(g.dtype)"),
        _chunked(D, D_FROM_G),
    ),
    _wrong(
        "outputs_in_bf16",
        "outputs are rounded to bf16 on their way out",
        "o",
        wrap=around(outputs=_outputs_in_bf16),
    ),
)

BACKWARD = (
    _wrong(
        "gradients_accumulated_in_bf16",
        "the gradient of the state is accumulated in bf16 over chunks",
        "dv",
        _chunked(
            WRITTEN,
            f"narrow = {_in_source('h')}\n    h = jax.lax.stop_gradient(h - narrow) + narrow\n    {WRITTEN}",
        ),
        right=("o", "final_state"),
    ),
)

BETWEEN_RANKS = (
    _wrong(
        "exchange_in_bf16",
        "A and B are exchanged in bf16",
        "o",
        _exchange(
            "pairs = gather(pair, axes)",
            "narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), pair)\n"
            "    pairs = jax.tree.map(lambda x: x.astype(pair[0].dtype), jax.lax.all_gather(narrow, axes))",
        ),
        ranks=4,
        first_bad_rank=1,
    ),
    _wrong(
        "transition_in_bf16",
        "A is exchanged in bf16, and B is not",
        "o",
        _exchange(
            "pairs = gather(pair, axes)",
            f"pairs = jax.lax.all_gather(({_in_source('pair[0]')}, pair[1]), axes)",
        ),
        regimes=("long_memory", "correlated_keys"),
        ranks=4,
        first_bad_rank=1,
    ),
    _wrong(
        "fold_in_bf16",
        "a rank's chunks are composed in bf16",
        "o",
        _affine(
            "return compose(of_chunk(chunk), earlier), None",
            f"return jax.tree.map(lambda x: {_in_source('x')}, compose(of_chunk(chunk), earlier)), None",
        ),
        ranks=4,
        first_bad_rank=1,
    ),
)

FAULTS = (*INPUTS, *ARITHMETIC, *BACKWARD, *BETWEEN_RANKS)
