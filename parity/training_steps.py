"""Twenty steps of AdamW on a hybrid model, in any layout: what is asked, and what is answered.

How far off an answer is stands in `training_truth.py`.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from implementations import training_step
from implementations.chunked import CHUNKED
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.contract import Dtype, Implementation
from implementations.hybrid_model import LINEAR_LAYERS, loss, unpinned, with_trained_state
from implementations.layer import gated_delta_net
from implementations.layer_layout import LayerLayout, Mode
from implementations.layer_on_mesh import layer_on_mesh
from implementations.layer_sizes import Sizes, parameters_like
from oracles.stream import Stream
from parity.compilation import jit_for_few_runs
from parity.x64 import x64

STEPS = 20
B, T, CHUNK_SIZE = 16, 48, 4
SIZES = Sizes(D=16, Hk=2, Hv=4, K=6, V=8, W=4)
VOCABULARY, HIDDEN, HEADS, HEAD_SIZE = 32, 24, 2, 8
RATE, WEIGHT_DECAY = 2e-4, 0.1

Tree = Any
Batch = tuple[Array, Array]  # tokens and targets `[B, T]`


@dataclass(frozen=True)
class Setup:
    """How a run is laid out: `data` and `context` devices share rows and tokens. `explicit`: the axes are, so that jax
    checks the layout of rows and tokens in every operation when it traces.
    """

    name: str
    rule: Implementation = CHUNKED
    data: int = 1
    context: int = 1
    accumulation: int = 1
    zero1: bool = False
    explicit: bool = False
    step: Callable[..., Any] = training_step.step

    @property
    def mesh(self) -> Mesh | None:
        if self.data == 1 and not self.rule.context_parallel:
            return None
        devices = np.array(jax.devices()[: self.data * self.context]).reshape(self.data, self.context)
        type = AxisType.Explicit if self.explicit else AxisType.Auto
        return Mesh(devices, ("data", "context"), axis_types=(type, type))

    @property
    def layer(self) -> Callable[..., Any]:
        """`(parameters, x, conv_state, recurrent_state) -> (y, ...)`, on the mesh where there is one."""
        mesh = self.mesh
        if mesh is None:
            return partial(gated_delta_net, rule=partial(self.rule.call, scale=None, chunk_size=CHUNK_SIZE))
        context = ("context",) if self.rule.context_parallel else ()
        mode: Mode = "explicit" if self.explicit else "automatic"
        over: dict[str, Any] = {"data": "data", "context": context, "chunk_size": CHUNK_SIZE}
        return partial(layer_on_mesh, LayerLayout(mesh, SIZES, self.rule, mode, **over))


SETUPS = {
    setup.name: setup
    for setup in (
        Setup("plain"),
        *(Setup(f"accumulation{n}", accumulation=n) for n in (4, 8)),
        *(Setup(f"context{n}", rule=TWO_PHASE, context=n) for n in (1, 2, 4, 8)),
        Setup("data2", data=2),
        *(Setup(f"zero1_accumulation{n}", data=2, zero1=True, accumulation=n) for n in (1, 4, 8)),
        *(
            Setup(f"zero1_context2{name}", TWO_PHASE, 2, 2, accumulation, zero1=True)
            for name, accumulation in (("", 1), ("_accumulation4", 4))
        ),
        Setup("explicit", data=2, explicit=True),
        *(Setup(f"explicit_context{n}", rule=TWO_PHASE, context=n, explicit=True) for n in (1, 2, 4, 8)),
        *(
            Setup(f"explicit_zero1_accumulation{n}", data=2, zero1=True, accumulation=n, explicit=True)
            for n in (1, 4, 8)
        ),
        Setup(
            "explicit_zero1_context2_accumulation4",
            *(TWO_PHASE, 2, 2, 4),
            zero1=True,
            explicit=True,
        ),
    )
}


class Run(NamedTuple):
    """The loss before each step `[STEPS]`, and the arrays of parameters after it, `[STEPS, ...]`, by path."""

    loss: np.ndarray
    parameters: dict[str, np.ndarray]


def run(setup: Setup, dtype: Dtype = "f32") -> Run:
    """f64 runs have x64 on."""
    mesh = setup.mesh
    with x64(dtype == "f64"), jax.set_mesh(mesh) if setup.explicit else nullcontext():
        return as_run(program(setup, dtype)(*placed(start(dtype), mesh)))


def adamw() -> optax.GradientTransformation:
    return optax.adamw(RATE, weight_decay=WEIGHT_DECAY)


@cache
def program(setup: Setup, dtype: Dtype) -> Callable[..., Any]:
    """`(parameters, batch) -> (losses, parameters after each step)`, a scan over steps; `dtype` keeps apart what x64
    makes different.
    """
    mesh = setup.mesh
    pin = partial(_over_rows_and_tokens, mesh=mesh, explicit=setup.explicit) if mesh else unpinned
    linear_attention = with_trained_state(setup.layer)
    state = training_step.Zero1(mesh) if mesh and setup.zero1 else training_step.EveryDevice()

    def of_batch(parameters: Tree, batch: Batch) -> Array:
        return loss(parameters, *batch, linear_attention=linear_attention, pin=pin)

    step = partial(setup.step, of_batch, adamw(), accumulation=setup.accumulation, state=state)

    def steps(parameters: Tree, batch: Batch) -> tuple[Array, Tree]:
        def one(carry: tuple[Tree, Tree], _: None) -> tuple[tuple[Tree, Tree], tuple[Array, Tree]]:
            parameters, optimizer_state, value = step(*carry, batch)
            return (parameters, optimizer_state), (value, parameters)

        carry = parameters, training_step.start(adamw(), parameters, state)
        return jax.lax.scan(one, carry, length=STEPS)[1]

    return jit_for_few_runs(steps)


def _over_rows_and_tokens(x: Array, place: str, layer: Any, *, mesh: Mesh, explicit: bool) -> Array:
    """Where axes are explicit, keys and values are told to be gathered for the queries of each rank."""
    if explicit and place in ("k", "v"):
        return jax.sharding.reshard(x, PartitionSpec("data"))
    move = jax.sharding.reshard if explicit else jax.lax.with_sharding_constraint
    return move(x, NamedSharding(mesh, PartitionSpec("data", "context")))


def placed(started: tuple[Tree, Batch], mesh: Mesh | None) -> tuple[Tree, Batch]:
    """Parameters whole on every device, rows over `data`, and tokens over `context`."""
    if mesh is None:
        return started
    whole, of_tokens = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data", "context"))
    return jax.device_put(started[0], whole), jax.device_put(started[1], of_tokens)


def as_run(found: tuple[Array, Tree]) -> Run:
    losses, parameters = found
    by_path = {
        "/".join(str(key.key) for key in path): np.asarray(x, dtype=np.float64)
        for path, x in jax.tree.leaves_with_path(parameters)
    }
    return Run(np.asarray(losses, dtype=np.float64), by_path)


def start(dtype: Dtype) -> tuple[Tree, Batch]:
    """Parameters, rounded to `dtype`, and tokens with their targets."""
    stream = Stream("training steps")
    wide = jnp.float64 if dtype == "f64" else jnp.float32
    D = SIZES.D

    def draw(name: str, *shape: int, scale: float, about: float = 0.0) -> Array:
        return jnp.asarray(about + scale * stream.normal(name, *shape), dtype=wide)

    def norm(name: str, *shape: int) -> Array:
        return draw(name, *shape, scale=0.1, about=1.0)

    def layer(name: str, *stacked: int, mixer: Tree) -> Tree:
        return {
            "norm": norm(f"{name} norm", *stacked, D),
            "mixer": mixer,
            "mlp_norm": norm(f"{name} mlp norm", *stacked, D),
            "mlp": {
                "gate": draw(f"{name} gate", *stacked, D, HIDDEN, scale=D**-0.5),
                "up": draw(f"{name} up", *stacked, D, HIDDEN, scale=D**-0.5),
                "down": draw(f"{name} down", *stacked, HIDDEN, D, scale=HIDDEN**-0.5),
            },
        }

    linear = {}
    for name, like in parameters_like(SIZES, wide).items():
        shape = (LINEAR_LAYERS, *like.shape)
        summed = SIZES.W if name.startswith("conv") else SIZES.Hv * SIZES.V if name == "out" else D
        linear[name] = draw(f"linear {name}", *shape, scale=summed**-0.5)
    linear["A_log"] = draw("linear A_log", LINEAR_LAYERS, SIZES.Hv, scale=0.3, about=-0.5)
    linear["dt_bias"] = draw("linear dt_bias", LINEAR_LAYERS, SIZES.Hv, scale=0.3)
    linear["initial_state"] = draw("linear state", LINEAR_LAYERS, SIZES.Hv, SIZES.K, SIZES.V, scale=0.3)
    linear["norm"] = norm("linear gated norm", LINEAR_LAYERS, SIZES.V)
    full = {name: draw(f"full {name}", D, HEADS, HEAD_SIZE, scale=D**-0.5) for name in ("q", "k", "v")}
    full["out"] = draw("full out", HEADS, HEAD_SIZE, D, scale=(HEADS * HEAD_SIZE) ** -0.5)
    parameters = {
        "embedding": draw("embedding", VOCABULARY, D, scale=1.0),
        "linear": layer("linear", LINEAR_LAYERS, mixer=linear),
        "full": layer("full", mixer=full),
        "norm": norm("norm", D),
        "readout": draw("readout", D, VOCABULARY, scale=0.001),
    }
    drawn = stream.integers(
        "text", VOCABULARY, 3, B, T + 1
    )  # the least of three: some words are common, and learnt first
    text = jnp.asarray(drawn.min(axis=0), dtype=jnp.int32)
    return parameters, (text[:, :-1], text[:, 1:])
