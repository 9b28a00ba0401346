"""The layer on meshes as it is put to the test: what is asked, what comes back, and how far off it is.

One problem for all layouts. Of y and dx each rank's tokens are a block of the unit, of the others each head is; those
of one number per head are judged head by head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from implementations.chunked import CHUNKED
from implementations.context_parallel.least_memory import LEAST_MEMORY
from implementations.context_parallel.load_balanced import LOAD_BALANCED
from implementations.context_parallel.pieces import zigzag
from implementations.context_parallel.three_phase import THREE_PHASE
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.contract import Dtype, Implementation
from implementations.layer_layout import LayerLayout, Mode
from implementations.layer_on_mesh import layer_on_mesh
from implementations.layer_sizes import PARAMETERS, Sizes
from oracles import gated_delta_net as oracle
from oracles.gated_delta_net.conditioned import conditioned
from oracles.stream import Stream
from parity.compilation import jit_for_few_runs
from parity.meshes import laid_out
from parity.precision import SMALLEST_NORMAL, UNIT_ROUNDOFF, round_to
from parity.unit import BLOCK, units
from parity.x64 import x64

# Eight ranks have three chunks each; a key head serves three value heads.
B, T, CHUNK_SIZE = 4, 96, 4
SIZES = Sizes(D=10, Hk=2, Hv=6, K=5, V=3, W=4)

OF_TOKENS = ("x", "dy", "y", "dx")

Arrays = dict[str, np.ndarray]
Found = dict[str, jax.Array]
Layer = Callable[..., Any]


@dataclass(frozen=True)
class Place:
    """A mesh by its axes, in order; rows lie over `data`, heads over `tensor`, tokens over all others."""

    name: str
    sizes: tuple[tuple[str, int], ...]
    rule: Implementation
    piece_order: tuple[int, ...] | None = None

    def layout(self, mode: Mode, **keywords: Any) -> LayerLayout:
        told: dict[str, Any] = {"mesh": self.mesh(mode), "sizes": SIZES, "rule": self.rule, "chunk_size": CHUNK_SIZE}
        return LayerLayout(**told | self.axes() | {"mode": mode, "piece_order": self.piece_order} | keywords)

    def axes(self) -> dict[str, Any]:
        names = [name for name, _ in self.sizes]
        found: dict[str, Any] = {name: name for name in ("data", "tensor") if name in names}
        return found | {"context": tuple(name for name in names if name not in found)}

    def mesh(self, mode: Mode) -> Mesh:
        names, sizes = zip(*self.sizes, strict=True)
        type = AxisType.Explicit if mode == "explicit" else AxisType.Auto
        devices = np.array(jax.devices()[: np.prod(sizes)]).reshape(sizes)
        return Mesh(devices, names, axis_types=(type,) * len(names))


# Where the devices of no two axes are as many, so that a program says over which one it sums.
FOUR_RANKS = Place("context4_tensor2", (("context", 4), ("tensor", 2)), TWO_PHASE)
DATA_CONTEXT_TENSOR = Place("data2_context2_tensor2", (("data", 2), ("context", 2), ("tensor", 2)), TWO_PHASE)
TWO_CONTEXT_AXES = Place("context2x2_tensor2", (("outer", 2), ("inner", 2), ("tensor", 2)), THREE_PHASE)
DATA_TENSOR = Place("data4_tensor2", (("data", 4), ("tensor", 2)), CHUNKED)
EIGHT_RANKS = Place("context8", (("context", 8),), TWO_PHASE)
ZIGZAG = Place("zigzag4_tensor2", (("context", 4), ("tensor", 2)), LOAD_BALANCED, zigzag(4))
OF_LEAST_MEMORY = Place("least_memory4_tensor2", (("context", 4), ("tensor", 2)), LEAST_MEMORY)


# What is asked


@cache
def arguments(dtype: Dtype) -> Arrays:
    """`oracle.ARGUMENTS`, rounded: decays near 1, so that what enters a rank is still there when it leaves."""
    stream = Stream("layer on meshes")
    shapes = oracle.shapes(B=B, T=T, **vars(SIZES))
    about = {"A_log": -2.0, "dt_bias": -2.0, "norm": 1.0}
    size = dict.fromkeys(oracle.PROJECTIONS, SIZES.D**-0.5) | {"out": (SIZES.Hv * SIZES.V) ** -0.5}
    size |= {"norm": 0.3, "A_log": 0.5, "dt_bias": 0.5}
    drawn = {
        name: about.get(name, 0.0) + size.get(name, 1.0) * stream.normal(name, *shapes[name])
        for name in oracle.ARGUMENTS
    }
    return {name: round_to(x, dtype) for name, x in drawn.items()}


@cache
def truth(dtype: Dtype) -> tuple[Arrays, Arrays]:
    """`oracle.QUANTITIES`, and the kappa of each."""
    exact = {name: x.astype(np.float64) for name, x in arguments(dtype).items()}
    return conditioned(exact, name="layer on meshes", chunk_size=CHUNK_SIZE)


# What is answered


@cache
def program(layout: LayerLayout, layer: Layer, dtype: Dtype, backward: bool) -> Any:
    """Of `(inputs, cotangents)`, jitted: `(outputs, gradients)`. `dtype` keeps apart what x64 makes different."""
    call = partial(layer, layout)

    def outputs_and_gradients(inputs: Any, cotangents: Any) -> Any:
        outputs, pullback = jax.vjp(call, *inputs)
        return outputs, pullback(cotangents)

    return jit_for_few_runs(outputs_and_gradients if backward else lambda inputs, cotangents: (call(*inputs), ()))


def answers(
    layout: LayerLayout,
    dtype: Dtype,
    *,
    layer: Layer = layer_on_mesh,
    backward: bool = True,
    lies: Callable[[Any], Any] = lambda specs: specs,
) -> Found:
    """`oracle.QUANTITIES`, or its outputs alone, as they lie on the mesh; `lies` says where inputs do."""
    given = {name: _laid_out(name, x, layout) for name, x in arguments(dtype).items()}
    x, parameters, *states = oracle.inputs_of(given)
    with x64(dtype == "f64"):
        inputs = jax.device_put((parameters, x, *states), layout.shardings(lies(layout.inputs())))
        cotangents = jax.device_put(oracle.cotangents_of(given), layout.shardings(layout.outputs()))
        (y, after, state), gradients = program(layout, layer, dtype, backward)(inputs, cotangents)
    found = {"y": y, **{f"final_conv_state_{name}": after[name] for name in after}, "final_recurrent_state": state}
    if backward:
        dparameters, dx, before, state = gradients
        found |= {"dx": dx, **{f"d{name}": dparameters[name] for name in dparameters}}
        found |= {**{f"dconv_state_{name}": before[name] for name in before}, "drecurrent_state": state}
    return found


def off(found: Found, dtype: Dtype, layout: LayerLayout, *, other: Found | None = None) -> dict[str, float]:
    """The units of the worst block of each, from the truth or from what `other` holds, which lies as `found` does; of y
    and dx the tokens of a rank, or of a piece, are a block.
    """
    values, kappa = ({name: _laid_out(name, x, layout) for name, x in some.items()} for some in truth(dtype))
    wanted = values if other is None else other
    held = T // (layout.ranks if layout.piece_order is None else len(layout.piece_order))
    u = UNIT_ROUNDOFF[dtype]
    worst = {}
    for name, x in found.items():
        each = (in_heads(name, np.asarray(y, np.float64)) for y in (x, wanted[name], kappa[name]))
        block = held if name in OF_TOKENS else BLOCK
        in_units = units(*each, u_c=u, u_out=u, floor=SMALLEST_NORMAL[dtype], block=block)
        worst[name] = float(in_units.max())
    return worst


def _laid_out(name: str, x: np.ndarray, layout: LayerLayout) -> np.ndarray:
    """As `layout` has the tokens, where there are any."""
    return laid_out(x, layout.piece_order) if layout.piece_order and name in OF_TOKENS else x


def in_heads(name: str, x: np.ndarray) -> np.ndarray:
    """`[rows, places, heads, size]`: what shares a row and a head is measured together."""
    if "state" in name:  # [B, W-1, H, size], or [B, H, K, V]
        return np.swapaxes(x, 1, 2) if "recurrent" in name else x
    axes = PARAMETERS.get(name.removeprefix("d"), "rows T D").split()
    if "rows" in axes:
        return x[:, :, None]
    heads = next((i for i, axis in enumerate(axes) if axis in ("Hk", "Hv")), None)
    by_head = x.reshape(1, -1) if heads is None else np.moveaxis(x, heads, 0).reshape(x.shape[heads], -1)
    return by_head[None, None]


def differing_copies(found: Found) -> list[str]:
    """The quantities of which devices that hold the same elements do not hold the same bits."""
    differ = []
    for name, x in found.items():
        copies: dict[str, set[bytes]] = {}
        for part in x.addressable_shards:
            copies.setdefault(str(part.index), set()).add(np.asarray(part.data).tobytes())
        if any(len(bits) > 1 for bits in copies.values()):
            differ.append(name)
    return differ


def relative(a: Found, b: Found) -> dict[str, float]:
    """The largest difference of each, relative to its largest element."""
    each = {name: (np.asarray(a[name], np.float64), np.asarray(b[name], np.float64)) for name in a}
    return {name: float(np.max(np.abs(x - y)) / np.max(np.abs(y))) for name, (x, y) in each.items()}
