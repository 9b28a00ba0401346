"""The GatedDeltaNet layer on a mesh, in three modes, which are told apart by who knows the layout of what is computed:

- automatic: the compiler. What comes in and goes out is constrained; rule and convolution make the axes of their ranks
  manual, and no others.
- explicit: the types. What jax finds a type for by itself (projections, the flattening of heads and sizes to channels,
  gates, norms) has it; the sum over heads is told its own; rule and convolution, whose pads, chunks and repeated heads
  have none, lie behind a border that is: a `shard_map` over rows and heads, and inside of that theirs over the ranks.
- manual: the program. All is inside one `shard_map` over every axis, where a device has its own rows, tokens and heads;
  it permutes halos, gathers maps, and adds what its heads contribute to y to what others do.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from implementations.causal_conv import causal_conv
from implementations.context_parallel.halo_conv import halo_conv
from implementations.context_parallel.on_rank import conv_on_rank, rule_on_rank
from implementations.context_parallel.ranks import check_layout
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
    rule and convolution do, and on rows that `data` does not divide.
    """
    check_inputs(parameters, x, conv_state, recurrent_state, segment_ids)
    layout.check_rows(x)
    if layout.context:
        check_layout(layout.context, x=x, segment_ids=segment_ids)
    given = parameters, x, conv_state, recurrent_state, segment_ids
    return {"automatic": _automatic, "explicit": _explicit, "manual": _manual}[layout.mode](layout, *given)


def _automatic(layout: LayerLayout, *given: Any) -> Results:
    *inputs, segment_ids = _placed(layout, jax.lax.with_sharding_constraint, given)
    rule, convolution = _rule(layout, layout.mesh), _convolution(layout, layout.mesh)
    results = gated_delta_net(*inputs, rule=rule, convolution=convolution, segment_ids=segment_ids)
    return jax.lax.with_sharding_constraint(results, layout.shardings(layout.outputs()))


def _explicit(layout: LayerLayout, *given: Any) -> Results:
    *inputs, segment_ids = _placed(layout, jax.sharding.reshard, given)
    of_y = NamedSharding(layout.mesh, layout.tokens())

    def read_out(o: Array, weight: Array) -> Array:
        """A sum over heads, which lie over `tensor`: where its result lies nothing but this can say."""
        precision = jax.lax.Precision.HIGHEST
        return jnp.einsum("bthv,hvd->btd", o, weight, precision=precision, out_sharding=of_y)

    rule, convolution = _rule_behind_a_border(layout), _convolution_behind_a_border(layout)
    return gated_delta_net(*inputs, rule=rule, convolution=convolution, segment_ids=segment_ids, read_out=read_out)


def _manual(layout: LayerLayout, *given: Any) -> Results:
    keywords = {"chunk_size": layout.chunk_size} | ({"axes": layout.context} if layout.context else {})
    rule = rule_on_rank(layout.rule) if layout.context else layout.rule.call
    convolution = partial(conv_on_rank, axes=layout.context) if layout.context else causal_conv

    def on_device(*given: Any) -> Results:
        *inputs, segment_ids = given
        return gated_delta_net(
            *inputs,
            rule=partial(rule, scale=None, **keywords),
            convolution=convolution,
            segment_ids=segment_ids,
            read_out=read_out,
        )

    def read_out(o: Array, weight: Array) -> Array:
        of_own_heads = sum_over_heads(o, weight)
        return of_own_heads if layout.tensor is None else jax.lax.psum(of_own_heads, layout.tensor)

    in_specs = (*layout.inputs(), layout.tokens())
    return _border(layout, on_device, set(layout.mesh.axis_names), in_specs, layout.outputs())(*given)


def _rule_behind_a_border(layout: LayerLayout) -> Call:
    """Told of the whole sequence, and of one device's rows and heads: what it does to them needs no type."""
    heads, state = PartitionSpec(layout.data, None, layout.tensor), layout.recurrent_state()

    def call(*inputs: Any, segment_ids: Any = None) -> tuple[Array, Array]:
        def inside(segment_ids: Any, *inputs: Any) -> tuple[Array, Array]:
            return _rule(layout, _mesh_inside(layout))(*inputs, **_documents(segment_ids))

        in_specs = (PartitionSpec(layout.data), *[heads] * 5, state)
        return _border(layout, inside, _beside(layout), in_specs, (heads, state))(segment_ids, *inputs)

    return call


def _convolution_behind_a_border(layout: LayerLayout) -> Call:
    """The same; channels are heads."""
    channels = PartitionSpec(layout.data, None, layout.tensor)

    def call(*inputs: Any, segment_ids: Any = None) -> tuple[Array, Array]:
        def inside(segment_ids: Any, *inputs: Any) -> tuple[Array, Array]:
            return _convolution(layout, _mesh_inside(layout))(*inputs, **_documents(segment_ids))

        in_specs = (PartitionSpec(layout.data), channels, PartitionSpec(layout.tensor), channels)
        return _border(layout, inside, _beside(layout), in_specs, (channels, channels))(segment_ids, *inputs)

    return call


def _rule(layout: LayerLayout, mesh: Any) -> Call:
    """With all but its inputs bound; `mesh` has the axes of its ranks, if there are any."""
    keywords: dict[str, Any] = {"mesh": mesh, "axes": layout.context} if layout.context else {}
    if layout.piece_order is not None:
        keywords["piece_order"] = layout.piece_order
    return partial(layout.rule.call, scale=None, chunk_size=layout.chunk_size, **keywords)


def _convolution(layout: LayerLayout, mesh: Any) -> Call:
    if not layout.context:
        return layout.convolution or causal_conv
    return partial(layout.convolution or halo_conv, mesh=mesh, axes=layout.context)


def _border(layout: LayerLayout, inside: Call, axes: set[str], in_specs: Any, out_specs: Any) -> Call:
    """`inside` where `axes` are manual."""
    if not axes:
        return inside
    # jit, for without it jax 0.10 runs no shard_map over some axes only. A final state is the same on all ranks because
    # all compute it from what all have received, which no type says.
    return jax.jit(
        jax.shard_map(
            inside, mesh=layout.mesh, axis_names=axes, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )
    )


def _beside(layout: LayerLayout) -> set[str]:
    """The axes that number no ranks."""
    return set(layout.mesh.axis_names) - set(layout.context)


def _mesh_inside(layout: LayerLayout) -> Any:
    """The mesh as it is behind the border, where all axes but those of the ranks are manual."""
    return jax.sharding.get_abstract_mesh() if _beside(layout) else layout.mesh


def _documents(segment_ids: Array | None) -> dict[str, Any]:
    return {} if segment_ids is None else {"segment_ids": segment_ids}


def _placed(layout: LayerLayout, place: Callable[[Any, Any], Any], given: tuple[Any, ...]) -> list[Any]:
    *inputs, segment_ids = given
    placed = list(place(tuple(inputs), layout.shardings(layout.inputs())))
    ids = None if segment_ids is None else place(segment_ids, layout.shardings(layout.tokens()))
    return [*placed, ids]
