"""The GatedDeltaNet layer on a mesh, in three modes, which are told apart by who knows the layout of what is computed:

- automatic: the compiler. What comes in and goes out is constrained; rule and convolution make the axes of their ranks
  manual, and no others.
- explicit: the types. jax finds those of the projections, of the flattening of heads to channels, of gates and norms;
  the sum over heads is told its own. Rule and convolution, whose pads, chunks and repeated heads have none, lie behind
  a border that states all axes: a `shard_map` inside of which a device has its own rows, tokens and heads.
- manual: the program. All of the layer is inside one such `shard_map`; what its heads contribute to y a device adds to
  what those of others do. In bf16 each device rounds what it sends back to x and to weights before all add it, where
  the other modes round the sum.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from implementations.arithmetic import accumulation_dtype
from implementations.causal_conv import causal_conv
from implementations.context_parallel.gspmd_conv import gspmd_conv
from implementations.context_parallel.halo_conv import halo_conv
from implementations.layer import ConvState, Parameters, check_inputs, gated_delta_net
from implementations.layer import read_out as sum_over_heads
from implementations.layer_layout import LayerLayout

Results = tuple[Array, dict[str, Array], Array]
Call = Callable[..., tuple[Array, Array]]


def layer_on_mesh(
    layout: LayerLayout,
    parameters: Parameters,
    x: Float[Array, "B T D"],
    conv_state: ConvState,
    recurrent_state: Float[Array, "B Hv K V"],
    segment_ids: Int[Array, "B T"] | None = None,
) -> tuple[Float[Array, "B T D"], dict[str, Array], Float[Array, "B Hv K V"]]:
    """`(y, conv_state, recurrent_state)` as `layer.gated_delta_net`, all placed as `layout` says.

    What comes in otherwise is moved there, at the cost of what is moved. Raises ValueError as `layer.check_inputs`, as
    rule and convolution do, and as `LayerLayout.check_inputs`.
    """
    check_inputs(parameters, x, conv_state, recurrent_state, segment_ids)
    layout.check_inputs(parameters, x, segment_ids)
    given = parameters, x, conv_state, recurrent_state, segment_ids
    return {"automatic": _automatic, "explicit": _explicit, "manual": _manual}[layout.mode](layout, *given)


def _automatic(layout: LayerLayout, *given: Any) -> Results:
    *inputs, segment_ids = _placed(layout, jax.lax.with_sharding_constraint, given)
    results = gated_delta_net(*inputs, rule=_rule(layout), convolution=_convolution(layout), segment_ids=segment_ids)
    return jax.lax.with_sharding_constraint(results, layout.shardings(layout.outputs()))


def _explicit(layout: LayerLayout, *given: Any) -> Results:
    *inputs, segment_ids = _placed(layout, jax.sharding.reshard, given)
    heads, of_y = layout.tokens(heads=True), NamedSharding(layout.mesh, layout.tokens())
    before, state = layout.conv_state()["q"], layout.recurrent_state()

    def read_out(o: Array, weight: Array) -> Array:
        """A sum over heads, which lie over `tensor`: where its result lies nothing but this can say."""
        precision = jax.lax.Precision.HIGHEST
        return jnp.einsum("bthv,hvd->btd", o, weight, precision=precision, out_sharding=of_y)

    return gated_delta_net(
        *inputs,
        rule=_behind_a_border(layout, _rule(layout), (*[heads] * 5, state), (heads, state)),
        # Its channels are those of the heads, one after the other.
        convolution=_behind_a_border(
            layout, _convolution(layout), (heads, PartitionSpec(layout.tensor), before), (heads, before)
        ),
        segment_ids=segment_ids,
        read_out=read_out,
    )


def _manual(layout: LayerLayout, *given: Any) -> Results:
    parameters, x, conv_state, recurrent_state, segment_ids = given
    narrow = parameters, x, conv_state

    def on_device(wide: Any, recurrent_state: Array, segment_ids: Any) -> Results:
        parameters, x, conv_state = jax.tree.map(lambda x, like: x.astype(like.dtype), wide, narrow)
        return gated_delta_net(
            *(parameters, x, conv_state, recurrent_state),
            rule=_rule(layout),
            convolution=_convolution(layout),
            segment_ids=segment_ids,
            read_out=read_out,
        )

    def read_out(o: Array, weight: Array) -> Array:
        of_own_heads = sum_over_heads(o, weight)
        return of_own_heads if layout.tensor is None else jax.lax.psum(of_own_heads, layout.tensor)

    # What devices add up in the backward they add in the wide dtype. (XLA for CPUs also aborts on some sums in bf16.)
    wide = jax.tree.map(lambda x: x.astype(accumulation_dtype(x.dtype)), narrow)
    of_wide = layout.parameters(), layout.tokens(), layout.conv_state()
    in_specs = (of_wide, layout.recurrent_state(), layout.tokens())
    return _border(layout, on_device, in_specs, layout.outputs())(wide, recurrent_state, segment_ids)


def _rule(layout: LayerLayout) -> Call:
    """Of global arrays, or of what one device holds where all axes are manual."""
    order = _order(layout) if layout.rule.load_balanced else {}
    return partial(layout.rule.call, scale=None, chunk_size=layout.chunk_size, **_ranks(layout), **order)


def _convolution(layout: LayerLayout) -> Call:
    if not layout.context:
        return layout.convolution or causal_conv
    order = {} if layout.convolution is gspmd_conv else _order(layout)
    return partial(layout.convolution or halo_conv, **_ranks(layout), **order)


def _ranks(layout: LayerLayout) -> dict[str, Any]:
    return {"mesh": layout.mesh, "axes": layout.context} if layout.context else {}


def _order(layout: LayerLayout) -> dict[str, Any]:
    """Left out where there is nothing to say; the layout has refused it for who does not take another."""
    return {} if layout.piece_order is None else {"piece_order": layout.piece_order}


def _behind_a_border(layout: LayerLayout, call: Call, in_specs: tuple[Any, ...], out_specs: Any) -> Call:
    """`call` of what one device holds, its arguments and results and those of `segment_ids` laid out as is said."""

    def inside(segment_ids: Array | None, *inputs: Any) -> tuple[Array, Array]:
        return call(*inputs, **({} if segment_ids is None else {"segment_ids": segment_ids}))

    program = _border(layout, inside, (layout.tokens(), *in_specs), out_specs)
    return lambda *inputs, segment_ids=None: program(segment_ids, *inputs)


def _border(layout: LayerLayout, inside: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """`inside` where all axes of the mesh are manual.

    A final state is the same on all ranks because all compute it from what all have received, which no type says.
    """
    return jax.shard_map(inside, mesh=layout.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def _placed(layout: LayerLayout, place: Callable[[Any, Any], Any], given: tuple[Any, ...]) -> list[Any]:
    """`given` where `layout` says, by `place`."""
    *inputs, segment_ids = given
    placed = list(place(tuple(inputs), layout.shardings(layout.inputs())))
    return [*placed, None if segment_ids is None else place(segment_ids, layout.shardings(layout.tokens()))]
