"""The meshes that context-parallel implementations run on, and what each rank holds."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from parity.layouts import Layout, over


class MeshTooLarge(ValueError):
    """More ranks were asked for than there are devices."""


@cache
def mesh_of(layout: Layout, devices: tuple[jax.Device, ...] | None = None) -> Mesh:
    """A mesh of the first of `devices`, or of those that jax has, in their order: rank r of one axis is device r.

    `jax.make_mesh` permutes the devices of a TPU, and takes none of five. Raises MeshTooLarge.
    """
    devices = tuple(jax.devices()) if devices is None else devices
    if layout.devices > len(devices):
        raise MeshTooLarge(
            f"{layout.devices} ranks need {layout.devices} devices, and jax has {len(devices)} "
            f"({devices[0].platform}); on a CPU, set jax_num_cpu_devices before jax starts, as conftest.py does"
        )
    names, sizes = zip(*layout.mesh, strict=True)
    automatic = (AxisType.Auto,) * len(sizes)
    return Mesh(np.array(devices[: layout.devices]).reshape(sizes), names, axis_types=automatic)


def context_mesh(ranks: int) -> Mesh:
    """A mesh of the first `ranks` devices with the one axis `context`. Raises MeshTooLarge."""
    return mesh_of(over(ranks))


def keywords(layout: Layout | None, devices: tuple[jax.Device, ...] | None = None) -> dict[str, Any]:
    """What a context-parallel call is told of the layout, beside what every call is told."""
    if layout is None:
        return {}
    order = {} if layout.piece_order is None else {"piece_order": layout.piece_order}
    return {"mesh": mesh_of(layout, devices), "axes": layout.axes, **order}


def within(layout: Layout, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` of what each device holds, inside a `shard_map` that makes all axes of the mesh manual."""
    tokens, state = (sharding(layout, over_tokens=over_tokens).spec for over_tokens in (True, False))

    def inside(documents: dict[str, jax.Array], *inputs: jax.Array) -> Any:
        return call(*inputs, **documents)

    of_documents = PartitionSpec(*tuple(tokens)[:2])
    program = jax.shard_map(
        inside,
        mesh=mesh_of(layout),
        in_specs=(of_documents, *[tokens] * 5, state),
        out_specs=(tokens, state),
        check_vma=False,  # no type says that all ranks compute the same final state
    )
    return lambda *inputs, **documents: program(documents, *inputs)


def place(x: np.ndarray, layout: Layout | None, *, over_tokens: bool) -> jax.Array:
    """`x [B, T, ...]` on the mesh, its T axis in the layout's order and sharded over its `axes`, or a state
    `[B, Hv, K, V]`, whole on every rank. On the default device without a layout.
    """
    if layout is None:
        return jax.device_put(x.copy())  # jax may use the memory, and a kernel that jax does not know may write to it
    lies = as_it_lies(x, layout) if over_tokens else x.copy()
    return jax.make_array_from_callback(lies.shape, sharding(layout, over_tokens=over_tokens), lies.__getitem__)


def sharding(layout: Layout, *, over_tokens: bool, devices: tuple[jax.Device, ...] | None = None) -> NamedSharding:
    """Of tokens `[B, T, H, ...]` or of a state `[B, H, K, V]`: the mesh may have axes for rows and for heads."""
    names = [name for name, _ in layout.mesh]
    rows, heads = (name if name in names else None for name in ("data", "tensor"))
    spec = PartitionSpec(rows, layout.axes, heads) if over_tokens else PartitionSpec(rows, heads)
    return NamedSharding(mesh_of(layout, devices), spec)


def copies_that_differ(x: jax.Array | np.ndarray, layout: Layout | None, *, over_tokens: bool) -> list[tuple[int, int]]:
    """Devices that do not hold the bits of the first one, `(first, other)`, of those that should: all that hold the
    same elements, or of a state those of one rank.

    Where there are several processes, of the devices of this one.
    """
    first: dict[tuple[str, int], tuple[int, bytes]] = {}
    of_device = _holders(layout)
    differ = []
    for part in x.addressable_shards if isinstance(x, jax.Array) else ():
        key = (str(part.index), 0 if over_tokens else of_device.get(part.device.id, 0))
        device, bits = first.setdefault(key, (part.device.id, np.asarray(part.data).tobytes()))
        if np.asarray(part.data).tobytes() != bits:
            differ.append((device, part.device.id))
    return differ


def per_rank(x: jax.Array | np.ndarray, layout: Layout | None, *, over_tokens: bool) -> list[np.ndarray]:
    """What each rank holds of a global array, in sequence order: its tokens, or its copy of a state that all should
    hold alike.

    Where a rank's devices hold an element, that copy is read, so that ranks that disagree are seen; other elements
    are taken from the array as a whole. Where there are several processes, this one has what its own devices hold, and
    the rest is masked.
    """
    whole = _known(x, wherever_it_lies=over_tokens or layout is None)
    if layout is None:
        return [whole]
    of_device = _holders(layout)
    held = [whole.copy() for _ in range(layout.holders)]
    for part in x.addressable_shards if isinstance(x, jax.Array) else ():
        if part.device.id in of_device:
            held[of_device[part.device.id]][part.index] = np.asarray(part.data)
    copies = [held[layout.holder_of(rank)] for rank in range(layout.ranks)]
    if not over_tokens:
        return copies
    tokens = whole.shape[1] // layout.ranks
    starts = [layout.place(rank) * tokens for rank in range(layout.ranks)]
    return [copy[:, start : start + tokens] for copy, start in zip(copies, starts, strict=True)]


def _known(x: jax.Array | np.ndarray, *, wherever_it_lies: bool) -> np.ndarray:
    """All of it; of several processes, what devices of this one hold or, where each device has its own, nothing yet."""
    if not isinstance(x, jax.Array) or jax.process_count() == 1:
        return np.array(x)
    known = np.ma.MaskedArray(np.zeros(x.shape, x.dtype), mask=True)
    for part in x.addressable_shards if wherever_it_lies else ():
        known[part.index] = np.asarray(part.data)
    return known


def as_it_lies(x: np.ndarray, layout: Layout | None) -> np.ndarray:
    """A copy of tokens `[B, T, ...]` in sequence order, in the order of the layout."""
    return laid_out(x, (layout and layout.piece_order) or (0,))


def laid_out(x: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """A copy of tokens `[B, T, ...]`, the pieces of `order` one after the other."""
    batch, tokens, *rest = x.shape
    return x.reshape(batch, len(order), tokens // len(order), *rest)[:, np.array(order)].reshape(x.shape)


@cache
def _holders(layout: Layout | None) -> dict[int, int]:
    """Whose tokens each device of the mesh holds, by the device's id."""
    if layout is None:
        return {}
    return {device.id: layout.holder(i) for i, device in enumerate(mesh_of(layout).devices.ravel())}
