"""The meshes that context-parallel implementations run on, and which rank holds what."""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ("context",)


class MeshTooLarge(ValueError):
    """More ranks were asked for than there are devices."""


def context_mesh(ranks: int) -> Mesh:
    """A mesh of the first `ranks` devices with the one axis `context`. Raises MeshTooLarge."""
    devices = jax.devices()
    if ranks > len(devices):
        raise MeshTooLarge(
            f"{ranks} ranks need {ranks} devices, and jax has {len(devices)} ({devices[0].platform}); "
            f"on a CPU, set jax_num_cpu_devices before jax starts, as conftest.py does"
        )
    return jax.make_mesh((ranks,), AXES, axis_types=(AxisType.Auto,), devices=devices[:ranks])


def place(x: np.ndarray, mesh: Mesh | None, *, over_tokens: bool) -> jax.Array:
    """`x` on the mesh, its T axis sharded over `AXES` or whole on every rank; on the default device without a mesh."""
    x = x.copy()  # jax may use the memory as it is, and a kernel that jax does not know may write to it
    if mesh is None:
        return jax.device_put(x)
    return jax.device_put(x, NamedSharding(mesh, PartitionSpec(None, AXES) if over_tokens else PartitionSpec()))


def copies_agree(x: jax.Array | np.ndarray) -> bool:
    """Whether all devices that hold the same elements of a global array hold the same bits."""
    first: dict[str, bytes] = {}
    parts = x.addressable_shards if isinstance(x, jax.Array) else []
    return all(first.setdefault(str(p.index), (held := np.asarray(p.data).tobytes())) == held for p in parts)


def per_rank(x: jax.Array | np.ndarray, mesh: Mesh | None, *, over_tokens: bool) -> list[np.ndarray]:
    """What each rank holds of a global array: its tokens, or its own copy of what every rank should hold alike.

    Where a rank's device holds an element, that copy is read, so that ranks that disagree are seen; other elements
    are taken from the array as a whole.
    """
    whole = np.array(x)
    if mesh is None:
        return [whole]
    devices = mesh.devices.ravel()
    tokens = whole.shape[1] // len(devices) if over_tokens else None
    pieces = []
    for rank, device in enumerate(devices):
        mine = whole.copy()
        for part in x.addressable_shards if isinstance(x, jax.Array) else ():
            if part.device == device:
                mine[part.index] = np.asarray(part.data)
        pieces.append(mine if tokens is None else mine[:, rank * tokens : (rank + 1) * tokens])
    return pieces
