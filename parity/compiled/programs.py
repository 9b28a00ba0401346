"""The programs whose cost is asked, compiled for abstract inputs, f32 where nothing is said: nothing is run."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from implementations.chunked import Factors, chunk_step, chunked, prepare
from implementations.context_parallel.affine import Affine
from implementations.contract import Dtype
from parity.layouts import Layout, over
from parity.meshes import keywords, sharding
from parity.precision import NUMPY, dtype_of
from parity.run import REPLICATED
from parity.shapes import Shape

Call = Callable[..., Any]
MapOfRank = Callable[[Factors], Affine]


class Sizes(NamedTuple):
    """What a rank holds: `N` chunks of `C` tokens, in `B` rows and `H` heads of `K` x `V`."""

    N: int
    C: int
    K: int
    V: int
    B: int = 1
    H: int = 1


def core(sizes: Sizes, *, backward: bool = False) -> Any:
    """`chunked` on one device: the outputs, or the outputs and all gradients."""
    inputs = _inputs(sizes)
    return _compiled(functools.partial(chunked, chunk_size=sizes.C), inputs, (inputs[2], inputs[5]), backward)


def map_of_a_rank(function: MapOfRank, sizes: Sizes, *, backward: bool = False) -> Any:
    """The `(A, B)` of given factors, or that and the gradients of the factors."""
    factors = jax.eval_shape(functools.partial(prepare, scale=None, chunk_size=sizes.C), *_inputs(sizes)[:5])
    pair = jax.eval_shape(function, factors)
    return _compiled(function, (factors,), pair, backward)


def adjoint_pass(sizes: Sizes) -> Any:
    """The cotangent of the state that enters given chunks, for cotangents of what they read."""
    *tokens, state = _inputs(sizes)
    factors = jax.eval_shape(functools.partial(prepare, scale=None, chunk_size=sizes.C), *tokens)

    def of_state(factors: Factors, state: Any, do: Any) -> Any:
        return jax.vjp(lambda h: jax.lax.scan(chunk_step, h, factors)[1], state)[1](do)

    return jax.jit(of_state).lower(factors, state, factors.u).compile()  # an output is as large as u


def scheme(call: Call, sizes: Sizes, ranks: int, *, backward: bool = False) -> Any:
    """A context-parallel call on as many devices as `ranks`, each of which holds `sizes`."""
    N, C, K, V, B, H = sizes
    return over_layout(call, over(ranks), Shape("", B, ranks * N * C, H, H, K, V, C), backward=backward)


def over_layout(
    call: Call,
    layout: Layout,
    shape: Shape,
    *,
    dtype: Dtype = "f32",
    backward: bool = False,
    vjp: Call | None = None,
) -> Any:
    """A context-parallel call over a layout: the outputs, or the outputs and all gradients, which `vjp` may bring."""
    told = {"scale": shape.scale, "chunk_size": shape.chunk_size, **keywords(layout)}
    arrays = abstract(shape, dtype, layout)
    brings = None if vjp is None else functools.partial(vjp, **told)
    return _compiled(functools.partial(call, **told), arrays[:6], arrays[6:], backward, brings)


def abstract(
    shape: Shape, dtype: Dtype, layout: Layout, devices: tuple[jax.Device, ...] | None = None
) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The six inputs and two cotangents over a layout, on the first of `devices` or of those that jax has."""
    return tuple(
        jax.ShapeDtypeStruct(
            size,
            NUMPY[dtype_of(name, dtype)],
            sharding=sharding(layout, over_tokens=name not in REPLICATED, devices=devices),
        )
        for name, size in shape.sizes().items()
    )


def outputs_and_gradients(call: Call) -> Call:
    """`call` and its vjp as one program of the inputs and the cotangents."""

    def program(inputs: tuple[Any, ...], cotangents: tuple[Any, ...]) -> Any:
        outputs, pullback = jax.vjp(call, *inputs)
        return outputs, pullback(cotangents)

    return program


def temporaries(compiled: Any) -> int:
    """The bytes that one device holds at most, beside inputs and outputs."""
    return int(compiled.memory_analysis().temp_size_in_bytes)


def _inputs(sizes: Sizes) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The six of the contract, on one device."""
    N, C, K, V, B, H = sizes
    shapes = list(Shape("", B, N * C, H, H, K, V, C).sizes().values())[:6]
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)


def _compiled(
    call: Call, inputs: tuple[Any, ...], cotangents: tuple[Any, ...], backward: bool, vjp: Call | None = None
) -> Any:
    def call_and_its_own_vjp(inputs: tuple[Any, ...], cotangents: tuple[Any, ...]) -> Any:
        assert vjp is not None
        return call(*inputs), vjp(*inputs, *cotangents)

    if backward:
        program = outputs_and_gradients(call) if vjp is None else call_and_its_own_vjp
        return jax.jit(program).lower(inputs, cotangents).compile()
    return jax.jit(call).lower(*inputs).compile()
