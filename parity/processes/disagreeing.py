"""Code that returns copies of the same data that differ, for the tests of what is then said."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from implementations.context_parallel.two_phase import two_phase
from implementations.contract import FEATURES, Implementation
from parity.layouts import AROUND_TENSOR, BESIDE_DATA, Layout, over
from parity.matrix import Case
from parity.problem import Problem
from parity.shapes import SHORT


def _copies(x: jax.Array, mesh: Mesh, of_device: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """`x`, of which every device has a copy of its own."""
    whole = PartitionSpec()
    return jax.shard_map(of_device, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)(x)


def _states_differ_beside_data(*inputs: jax.Array, mesh: Mesh, **keywords: Any) -> tuple[jax.Array, jax.Array]:
    def negated(state: jax.Array) -> jax.Array:
        return jnp.where(jax.lax.axis_index("data") == 1, -state, state)

    o, final_state = two_phase(*inputs, mesh=mesh, **keywords)
    return o, _copies(final_state, mesh, negated)


def _states_differ_beside_tensor(*inputs: jax.Array, mesh: Mesh, **keywords: Any) -> tuple[jax.Array, jax.Array]:
    def negated(state: jax.Array) -> jax.Array:
        there = (jax.lax.axis_index("inner") == 1) & (jax.lax.axis_index("tensor") == 1)
        return jnp.where(there, -state, state)

    o, final_state = two_phase(*inputs, mesh=mesh, **keywords)
    return o, _copies(final_state, mesh, negated)


def _tokens_of_others_differ(*inputs: jax.Array, mesh: Mesh, **keywords: Any) -> tuple[jax.Array, jax.Array]:
    def negated(o: jax.Array) -> jax.Array:
        there = jax.lax.axis_index("context") >= 4
        return jnp.where(there, o.at[:, : o.shape[1] // 2].multiply(-1), o)

    o, final_state = two_phase(*inputs, mesh=mesh, **keywords)
    return _copies(o, mesh, negated), final_state


def _case(call: Callable[..., Any], layout: Layout) -> Case:
    name, supports = call.__name__.strip("_"), FEATURES - {"gradients"}
    implementation = Implementation(name, call, {"f64": "f64"}, context_parallel=True, supports=supports)
    return Case(implementation, Problem("typical", SHORT, "f64"), layout)


CASES = (
    _case(_states_differ_beside_data, BESIDE_DATA),
    _case(_tokens_of_others_differ, over(8)),
    _case(_states_differ_beside_tensor, AROUND_TENSOR),
)
