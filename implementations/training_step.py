"""A step of AdamW around any loss: gradients accumulated over microbatches, the optimizer's state whole on every device
or divided over the data axis (ZeRO-1, Rajbhandari et al., 2020).

With ZeRO-1 each device has a part of every moment. It gets the same part of the gradients, summed over the data axis,
updates that part of the parameters, and the parts are gathered. How a part lies is said, and XLA finds the collectives.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

Loss = Callable[[Any, Any], Float[Array, ""]]  # of parameters and a batch, a tree of arrays with the rows first
Tree = Any


@dataclass(frozen=True)
class Zero1:
    """The optimizer's state divided over the axis `axis` of `mesh`, which is automatic or explicit.

    Raises ValueError on an axis that the mesh lacks, and on one that is automatic beside an explicit one.
    """

    mesh: Mesh
    axis: str = "data"

    def __post_init__(self) -> None:
        types = dict(zip(self.mesh.axis_names, self.mesh.axis_types, strict=True))
        if self.axis not in types:
            raise ValueError(f"axis must be one of the mesh, {self.mesh.axis_names}; got {self.axis!r}")
        if AxisType.Explicit in types.values() and types[self.axis] is not AxisType.Explicit:
            raise ValueError(f"{self.axis!r} must be explicit where another axis is; got {types}")

    def divided(self, tree: Tree) -> Tree:
        """Each array over its first axis that the devices divide; whole where there is none."""

        def part(x: Array) -> Array:
            over = divided_axis(x, self.mesh.shape[self.axis])
            spec = PartitionSpec(*(self.axis if i == over else None for i in range(x.ndim)))
            return laid_out(x, self.mesh, spec)

        return jax.tree.map(part, tree)

    def whole(self, tree: Tree) -> Tree:
        return jax.tree.map(lambda x: laid_out(x, self.mesh, PartitionSpec()), tree)


@dataclass(frozen=True)
class EveryDevice:
    """The optimizer's state whole on every device."""

    def divided(self, tree: Tree) -> Tree:
        return tree

    def whole(self, tree: Tree) -> Tree:
        return tree


def divided_axis(x: Array, devices: int) -> int | None:
    return next((i for i, size in enumerate(x.shape) if size % devices == 0), None)


def laid_out(x: Array, mesh: Mesh, spec: PartitionSpec) -> Array:
    """x as `spec` says: where axes are explicit by a reshard, for there a constraint only asserts."""
    explicit = AxisType.Explicit in mesh.axis_types
    move = jax.sharding.reshard if explicit else jax.lax.with_sharding_constraint
    return move(x, NamedSharding(mesh, spec))


def start(optimizer: optax.GradientTransformation, parameters: Tree, state: Zero1 | EveryDevice) -> Tree:
    """The optimizer's state before the first step."""
    return state.divided(optimizer.init(parameters))


def step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    parameters: Tree,
    optimizer_state: Tree,
    batch: Tree,
    *,
    accumulation: int = 1,
    state: Zero1 | EveryDevice,
) -> tuple[Tree, Tree, Float[Array, ""]]:
    """`(parameters, optimizer_state, loss)`: the loss is that before the step.

    Raises ValueError where the rows of `batch` cannot be divided into `accumulation` microbatches, each with rows on
    every device that explicit axes say has some.
    """
    value, gradients = accumulated(loss, parameters, batch, accumulation)
    parts = state.divided(parameters)
    updates, optimizer_state = optimizer.update(state.divided(gradients), optimizer_state, parts)
    return state.whole(optax.apply_updates(parts, updates)), state.divided(optimizer_state), value


def accumulated(loss: Loss, parameters: Tree, batch: Tree, accumulation: int) -> tuple[Array, Tree]:
    """The loss and its gradients, the mean over `accumulation` microbatches."""
    if not isinstance(accumulation, Integral) or isinstance(accumulation, bool) or accumulation < 1:
        raise ValueError(f"accumulation must be a positive integer; got {accumulation!r}")
    if accumulation == 1:
        return jax.value_and_grad(loss)(parameters, batch)

    def add(sums: Tree, microbatch: Tree) -> tuple[Tree, None]:
        return jax.tree.map(jnp.add, sums, jax.value_and_grad(loss)(parameters, microbatch)), None

    of_all = jax.tree.map(lambda x: microbatches(x, accumulation), batch)
    of_one = jax.eval_shape(jax.value_and_grad(loss), parameters, jax.tree.map(lambda x: x[0], of_all))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype, device=x.sharding), of_one)
    sums, _ = jax.lax.scan(add, zeros, of_all)
    value, gradients = jax.tree.map(lambda x: x / accumulation, sums)
    return value, gradients


def microbatches(x: Array, accumulation: int) -> Array:
    """`[accumulation, rows / accumulation, ...]`. Each takes every so-manieth row, so that where rows lie on several
    devices each has rows of every microbatch, and none is moved.
    """
    rows, *rest = x.shape
    if rows % accumulation:
        raise ValueError(f"the rows of a batch must be a multiple of the {accumulation} accumulation steps; got {rows}")
    sharding = jax.typeof(x).sharding
    over = sharding.spec[0] if sharding.spec else None  # of explicit axes; automatic ones have no layout yet
    devices = math.prod(sharding.mesh.shape[axis] for axis in ((over,) if isinstance(over, str) else over or ()))
    if rows // accumulation % devices:
        raise ValueError(
            f"each of {accumulation} microbatches must have rows on each of the {devices} devices that {over!r} has; "
            f"got {rows} rows: accumulate fewer steps, or use a larger batch"
        )
    return jnp.moveaxis(x.reshape(rows // accumulation, accumulation, *rest), 1, 0)
