"""The programs whose cost is asked, compiled for abstract inputs in f32: nothing is run."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from implementations.chunked import Factors, chunk_step, chunked, prepare
from implementations.context_parallel.affine import Affine
from parity.layouts import AXES
from parity.meshes import context_mesh

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
    inputs = _inputs(sizes, 1, None)
    return _compiled(functools.partial(chunked, chunk_size=sizes.C), inputs, (inputs[2], inputs[5]), backward)


def map_of_a_rank(function: MapOfRank, sizes: Sizes, *, backward: bool = False) -> Any:
    """The `(A, B)` of given factors, or that and the gradients of the factors."""
    factors = jax.eval_shape(functools.partial(prepare, scale=None, chunk_size=sizes.C), *_inputs(sizes, 1, None)[:5])
    pair = jax.eval_shape(function, factors)
    return _compiled(function, (factors,), pair, backward)


def adjoint_pass(sizes: Sizes) -> Any:
    """The cotangent of the state that enters given chunks, for cotangents of what they read."""
    *tokens, state = _inputs(sizes, 1, None)
    factors = jax.eval_shape(functools.partial(prepare, scale=None, chunk_size=sizes.C), *tokens)

    def of_state(factors: Factors, state: Any, do: Any) -> Any:
        return jax.vjp(lambda h: jax.lax.scan(chunk_step, h, factors)[1], state)[1](do)

    return jax.jit(of_state).lower(factors, state, factors.u).compile()  # an output is as large as u


def scheme(call: Callable[..., Any], sizes: Sizes, ranks: int, *, backward: bool = False) -> Any:
    """A context-parallel call on as many devices as `ranks`, each of which holds `sizes`."""
    mesh = context_mesh(ranks)
    inputs = _inputs(sizes, ranks, mesh)
    over_ranks = functools.partial(call, chunk_size=sizes.C, mesh=mesh, axes=AXES)
    return _compiled(over_ranks, inputs, (inputs[2], inputs[5]), backward)


def temporaries(compiled: Any) -> int:
    """The bytes that one device holds at most, beside inputs and outputs."""
    return int(compiled.memory_analysis().temp_size_in_bytes)


def _inputs(sizes: Sizes, ranks: int, mesh: Mesh | None) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The six of the contract, laid out over the mesh where there is one."""
    N, C, K, V, B, H = sizes
    T = ranks * N * C

    def array(*shape: int, over: PartitionSpec) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=mesh and NamedSharding(mesh, over))

    sequences = (B, T, H, K), (B, T, H, K), (B, T, H, V), (B, T, H), (B, T, H)
    tokens = tuple(array(*shape, over=PartitionSpec(None, AXES)) for shape in sequences)
    return *tokens, array(B, H, K, V, over=PartitionSpec())


def _compiled(call: Callable[..., Any], inputs: tuple[Any, ...], cotangents: tuple[Any, ...], backward: bool) -> Any:
    def outputs_and_gradients(inputs: tuple[Any, ...], cotangents: tuple[Any, ...]) -> Any:
        outputs, pullback = jax.vjp(call, *inputs)
        return outputs, pullback(cotangents)

    if backward:
        return jax.jit(outputs_and_gradients).lower(inputs, cotangents).compile()
    return jax.jit(call).lower(*inputs).compile()
