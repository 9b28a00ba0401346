"""How the GatedDeltaNet layer lies on a mesh, and which combinations are refused before there is any array.

Rows lie over the axis `data`, tokens over the axes `context`, heads over the axis `tensor`::

    x, y [B, T, D]               data, context, -           segment_ids [B, T]             data, context
    projections [D, H, ...]      -, tensor                  conv_state [B, W-1, H, K]      data, -, tensor
    conv weights, A_log, dt_bias, out [H, ...]  tensor      recurrent_state [B, Hv, K, V]  data, tensor

and `norm` is whole everywhere. In each of the modes of `layer_on_mesh` alike.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from implementations.causal_conv import causal_conv
from implementations.context_parallel.gspmd_conv import gspmd_conv
from implementations.context_parallel.halo_conv import check_halo, halo_conv
from implementations.context_parallel.pieces import check_sequence_order, order_of
from implementations.context_parallel.ranks import Axes, check_layout, check_ranks
from implementations.contract import Implementation
from implementations.layer import Convolution, Parameters
from implementations.layer_sizes import CONV_STATE, PARAMETERS, Sizes, sizes_of

Mode = Literal["automatic", "explicit", "manual"]

# Of every axis of the mesh; a `shard_map` makes any axis manual.
_TYPES = {"automatic": {AxisType.Auto}, "explicit": {AxisType.Explicit}, "manual": {AxisType.Auto, AxisType.Explicit}}


@dataclass(frozen=True)
class LayerLayout:
    """The layer of `sizes` around `rule` on `mesh`.

    - `mode`: "automatic", the compiler finds layouts from those of the inputs; "explicit", they are part of the types;
      "manual", the layer is what one device does with what it holds.
    - `data`, `context` (major to minor), `tensor`: axes of the mesh, none of them twice. Over all others everything is
      whole.
    - `rule`: context parallel where there are axes `context`, and only there.
    - `convolution`: under the contract of `halo_conv` where there are axes `context`, and of `causal_conv` elsewhere;
      None is that one.
    - `piece_order`: which piece of the sequence lies where along T, for `load_balanced`; x, y and `segment_ids` lie so.

    Raises ValueError on what cannot work, and says why and what to use instead.
    """

    mesh: Mesh
    sizes: Sizes
    rule: Implementation
    mode: Mode
    data: str | None = None
    context: Axes = ()
    tensor: str | None = None
    chunk_size: int = 64
    convolution: Convolution | None = None
    piece_order: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _check_axes(self)
        _check_types(self)
        _check_order(self)
        _check_rule(self)
        _check_convolution(self)
        heads, ranks = self.sizes.Hk, self.size(self.tensor)
        if heads % ranks:
            raise ValueError(
                f"key heads must be a multiple of the devices of {self.tensor!r}, for a device holds whole heads and "
                f"the value heads that they serve; got Hk = {heads} over {ranks}: use a smaller axis, or write each "
                f"key head down several times, for as many value heads as there are then"
            )

    @property
    def ranks(self) -> int:
        return math.prod(self.mesh.shape[axis] for axis in self.context)

    def size(self, axis: str | None) -> int:
        return 1 if axis is None else self.mesh.shape[axis]

    def parameters(self) -> dict[str, PartitionSpec]:
        """Where each parameter lies."""
        return {name: self._over_heads(axes.split()) for name, axes in PARAMETERS.items()}

    def tokens(self, *, heads: bool = False) -> PartitionSpec:
        """Of x and y `[B, T, D]`, of `segment_ids [B, T]` and, with `heads`, of `[B, T, H, ...]`."""
        over = self.context[0] if len(self.context) == 1 else self.context or None
        return PartitionSpec(self.data, over, *[self.tensor] * heads)

    def conv_state(self) -> dict[str, PartitionSpec]:
        return dict.fromkeys(CONV_STATE, PartitionSpec(self.data, None, self.tensor))

    def recurrent_state(self) -> PartitionSpec:
        return PartitionSpec(self.data, self.tensor)

    def inputs(self) -> tuple[Any, ...]:
        """Of `(parameters, x, conv_state, recurrent_state)`."""
        return (self.parameters(), *self.outputs())

    def outputs(self) -> tuple[Any, ...]:
        """Of `(y, conv_state, recurrent_state)`."""
        return self.tokens(), self.conv_state(), self.recurrent_state()

    def shardings(self, specs: Any) -> Any:
        """On the mesh: `jax.device_put(inputs, layout.shardings(layout.inputs()))`."""
        return jax.tree.map(partial(NamedSharding, self.mesh), specs, is_leaf=lambda x: isinstance(x, PartitionSpec))

    def check_inputs(self, parameters: Parameters, x: Array, segment_ids: Array | None) -> None:
        """Raise ValueError unless `parameters` have the sizes, `data` divides the rows of `x [B, T, D]`, and the tokens
        can be split over `context`, each rank with a halo for the next, and do not lie over its axes in another order;
        and where rule or convolution know no `segment_ids`.
        """
        if segment_ids is not None and not self.rule.packed:
            raise ValueError(f"{self.rule.name} knows no segment_ids: give each document a row, or use a packed rule")
        if segment_ids is not None and self.convolution is gspmd_conv:
            raise ValueError("gspmd_conv knows no segment_ids: leave convolution out, which is halo_conv")
        if sizes_of(parameters) != self.sizes:
            raise ValueError(f"the layout is that of {self.sizes}; got parameters of {sizes_of(parameters)}")
        rows, tokens, _ = x.shape
        if rows % self.size(self.data):
            raise ValueError(
                f"B must be a multiple of the devices of {self.data!r}; "
                f"got B = {rows} over {self.size(self.data)}: pad the batch"
            )
        if self.context:
            check_ranks(tokens, self.mesh, self.context)
            check_layout(self.context, x=x, segment_ids=segment_ids)
            held = tokens // self.ranks
            check_halo(self.sizes.W, order_of(self.piece_order, self.ranks, held=held), self.ranks, held=held)

    def _over_heads(self, axes: Sequence[str]) -> PartitionSpec:
        return PartitionSpec(*(self.tensor if axis in ("Hk", "Hv") else None for axis in axes))


def _check_axes(layout: LayerLayout) -> None:
    if layout.mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {get_args(Mode)}; got {layout.mode!r}")
    if not isinstance(layout.context, tuple):
        raise ValueError(f"context must be a tuple of axes, major to minor; got {layout.context!r}")
    used = [axis for axis in (layout.data, *layout.context, layout.tensor) if axis is not None]
    unknown = [axis for axis in used if axis not in layout.mesh.axis_names]
    if unknown:
        raise ValueError(f"the mesh has the axes {layout.mesh.axis_names}; got {unknown}")
    twice = sorted(axis for axis, times in Counter(used).items() if times > 1)
    if twice:
        raise ValueError(
            f"an axis can shard rows, tokens or heads, and one of them only; got data={layout.data!r}, "
            f"context={layout.context!r} and tensor={layout.tensor!r}, with {twice} twice"
        )


def _check_types(layout: LayerLayout) -> None:
    types = dict(zip(layout.mesh.axis_names, layout.mesh.axis_types, strict=True))
    wrong = {axis: type.name for axis, type in types.items() if type not in _TYPES[layout.mode]}
    if wrong:
        wanted = " or ".join(f"AxisType.{type.name}" for type in sorted(_TYPES[layout.mode], key=lambda x: x.name))
        raise ValueError(
            f"in mode {layout.mode!r} every axis of the mesh must be {wanted}; got {wrong}: make the mesh with "
            f"axis_types= (jax.make_mesh makes them Explicit where it is not told)"
        )


def _check_order(layout: LayerLayout) -> None:
    order = layout.piece_order
    if order is None:
        return
    if not layout.context:
        raise ValueError(f"piece_order says what lies on which rank, and there are no axes context; got {order}")
    order_of(order, layout.ranks, held=len(order))
    if not layout.rule.load_balanced:
        check_sequence_order(order)  # says why, and names the rule that takes it


def _check_rule(layout: LayerLayout) -> None:
    rule, beside = layout.rule, [axis for axis in (layout.data, layout.tensor) if layout.size(axis) > 1]
    if not rule.traceable or rule.vjp is not None:
        what = "cannot be traced by jax" if not rule.traceable else "brings a vjp that jax does not know of"
        raise ValueError(
            f"{rule.name} {what}, and the layer is differentiated as a whole: "
            f"wrap its call in jax.pure_callback and jax.custom_vjp, and leave vjp out of the record"
        )
    if layout.context and not rule.context_parallel:
        raise ValueError(
            f"{rule.name} must see all tokens, and they are to lie over {layout.context}: each device would gather "
            f"the sequence. Use a context-parallel rule, or any_kernel.context_parallel({rule.name})"
        )
    if rule.context_parallel and not layout.context:
        raise ValueError(
            f"{rule.name} is context parallel and there are no axes for its ranks: "
            f"name them in context=, or use a rule for one device, such as chunked"
        )
    if len(layout.context) > 1 and "several_axes" not in rule.supports:
        raise ValueError(
            f"{rule.name} numbers its ranks over one axis of a mesh, and context names {layout.context}: make one "
            f"axis of them, or use a rule that supports several_axes"
        )
    if rule.context_parallel and beside and "other_axes" not in rule.supports:
        raise ValueError(
            f"{rule.name} does not support other_axes, and rows or heads lie over {beside}: "
            f"use a mesh of context axes alone, or a rule that supports them"
        )
    if layout.mode != "automatic" and layout.context and "manual_axes" not in rule.supports:
        raise ValueError(
            f"in mode {layout.mode!r} the rule is called where all axes are manual, and {rule.name} does not support "
            f"manual_axes: where it makes those of its ranks manual itself jax refuses it, for they are so already. "
            f"Use mode 'automatic', or a rule that supports them, as two_phase does"
        )


def _check_convolution(layout: LayerLayout) -> None:
    convolution = layout.convolution
    if not layout.context or convolution is None:
        if convolution in (halo_conv, gspmd_conv):
            raise ValueError("this convolution is for tokens over context axes, and there are none: leave it out")
        return
    if convolution is causal_conv:
        raise ValueError(
            f"causal_conv joins the state to the tokens, and where they lie over {layout.context} the compiler "
            f"exchanges them all for it: leave convolution out, which is halo_conv, or use gspmd_conv in mode "
            f"'automatic'"
        )
    if convolution is gspmd_conv and layout.piece_order is not None:
        _check_pieces(layout.piece_order)
    if convolution is gspmd_conv and layout.mode != "automatic":
        raise ValueError(
            f"gspmd_conv leaves the halo to the compiler's partitioner, which has no say over axes that are "
            f"{layout.mode}, and a left pad of a sharded axis has no explicit type: leave convolution out, which "
            f"exchanges the halo by a permute, or use mode 'automatic'"
        )
    if layout.mode != "automatic" and convolution is not halo_conv:
        raise ValueError(
            f"in mode {layout.mode!r} the convolution is called where all axes are manual, with one rank's tokens and "
            f"their halo, and no other can be given: leave convolution out, or use mode 'automatic'"
        )


def _check_pieces(piece_order: Sequence[int]) -> None:
    """The order is that of the sequence."""
    try:
        check_sequence_order(piece_order)
    except ValueError:
        raise ValueError(
            f"gspmd_conv takes the tokens before a token from where they lie, and of the pieces {tuple(piece_order)} "
            f"what lies before in load-balanced (zigzag) order is not what comes before in the sequence; y would be "
            f"wrong at the first tokens of each piece, and nothing would say so. Leave convolution out, which "
            f"exchanges the halo of each piece, or lay the tokens out in sequence order, with piece_order=None"
        ) from None
