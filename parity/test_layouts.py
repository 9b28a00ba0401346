"""Tokens reach the rank that is to hold them, on every layout, and what a rank holds is read from its own devices."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from parity.layouts import BESIDE_BOTH, BESIDE_DATA, LAYOUTS, MINOR_FIRST, SHUFFLED, ZIGZAG, over
from parity.meshes import copies_that_differ, keywords, mesh_of, per_rank, place
from parity.shapes import RAGGED, SHORT, SINGLE, UNEVEN, WIDE

EVERY = {"one_axis": over(4), **LAYOUTS}

each_layout = pytest.mark.parametrize("layout", EVERY.values(), ids=EVERY)


def tokens(layout, per_rank=3):
    """Two rows and two heads, each token its own number: `[2, T, 2]`."""
    size = layout.ranks * per_rank
    return np.arange(4 * size, dtype=np.float32).reshape(2, size, 2)


@each_layout
def test_every_rank_gets_the_tokens_that_follow_those_of_the_rank_before(layout):
    x = tokens(layout)
    found = per_rank(place(x, layout, over_tokens=True), layout, over_tokens=True)
    assert len(found) == layout.ranks
    assert np.array_equal(np.concatenate(found, axis=1), x)


@each_layout
def test_whose_tokens_a_device_holds_is_what_axis_index_says(layout):
    """Of every device of the mesh, whatever axes there are beside."""
    mesh = mesh_of(layout)
    names = [name for name, _ in layout.mesh]

    def number(x):
        return x + jax.lax.axis_index(layout.axes)

    spec = PartitionSpec(names)
    numbers = jax.shard_map(number, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    found = jax.jit(numbers)(np.zeros(layout.devices, dtype=np.int32))
    assert [layout.holder(device) for device in range(layout.devices)] == found.tolist()


@each_layout
def test_rows_and_heads_are_split_where_there_is_an_axis_for_them(layout):
    x, state = tokens(layout), np.zeros((2, 2, 3, 3), dtype=np.float32)
    sizes = dict(layout.mesh)
    rows, heads = 2 // sizes.get("data", 1), 2 // sizes.get("tensor", 1)
    held = x.shape[1] // layout.holders
    for part in place(x, layout, over_tokens=True).addressable_shards:
        assert part.data.shape == (rows, held, heads)
    for part in place(state, layout, over_tokens=False).addressable_shards:
        assert part.data.shape == (rows, heads, 3, 3)


@each_layout
def test_a_copy_of_a_state_is_read_from_the_devices_of_its_rank(layout):
    """Each device has its own: what comes back is that of a device of the rank, and copies that differ are seen."""
    mesh = mesh_of(layout)
    parts = [
        jax.device_put(np.full((2, 2), layout.holder(i), dtype=np.float32), device)
        for i, device in enumerate(mesh.devices.ravel())
    ]
    whole = NamedSharding(mesh, PartitionSpec())
    state = jax.make_array_from_single_device_arrays((2, 2), whole, parts)
    found = [int(copy[0, 0]) for copy in per_rank(state, layout, over_tokens=False)]
    assert found == [layout.holder_of(rank) for rank in range(layout.ranks)]
    assert copies_that_differ(state, layout, over_tokens=False) == []
    assert copies_that_differ(state, layout, over_tokens=True) or layout.holders == 1


@pytest.mark.parametrize("layout", [BESIDE_DATA, BESIDE_BOTH], ids=lambda layout: layout.name)
def test_devices_of_one_rank_that_hold_different_states_are_seen(layout):
    mesh = mesh_of(layout)
    parts = [jax.device_put(np.full((2, 2), i), device) for i, device in enumerate(mesh.devices.ravel())]
    state = jax.make_array_from_single_device_arrays((2, 2), NamedSharding(mesh, PartitionSpec()), parts)
    differ = copies_that_differ(state, layout, over_tokens=False)
    ids = [device.id for device in mesh.devices.ravel()]
    assert all(layout.holder(ids.index(first)) == layout.holder(ids.index(other)) for first, other in differ)
    assert len(differ) == layout.devices - layout.holders


def test_pieces_lie_as_the_order_says():
    lies = np.asarray(place(tokens(ZIGZAG, 1)[:1, :, :1], ZIGZAG, over_tokens=True))
    assert (lies.ravel() / 2).tolist() == list(ZIGZAG.piece_order)
    assert [ZIGZAG.holder_of(piece) for piece in range(8)] == [0, 1, 2, 3, 3, 2, 1, 0]
    assert [SHUFFLED.holder_of(piece) for piece in range(8)] == [0, 1, 1, 0, 1, 0, 0, 1]
    assert sorted(SHUFFLED.piece_order) == sorted(ZIGZAG.piece_order) == list(range(8))


def test_a_call_is_told_of_an_order_only_where_there_is_one():
    assert keywords(None) == {}
    assert keywords(MINOR_FIRST) == {"mesh": mesh_of(MINOR_FIRST), "axes": ("outer", "inner")}
    assert keywords(ZIGZAG)["piece_order"] == ZIGZAG.piece_order


@pytest.mark.parametrize(
    ("layout", "shape", "fits"),
    [
        (over(5), UNEVEN, True),
        (over(5), RAGGED, False),
        (over(1), SINGLE, True),
        (MINOR_FIRST, SHORT, True),
        (BESIDE_DATA, UNEVEN, False),
        (BESIDE_DATA, WIDE, False),  # one row
        (BESIDE_BOTH, RAGGED, True),
        (ZIGZAG, SHORT, True),
        (ZIGZAG, SINGLE, False),
    ],
)
def test_what_can_be_split_over_a_layout(layout, shape, fits):
    assert layout.splits(shape) == fits


class Chip:
    """What jax says of a TPU device."""

    platform, device_kind, core_on_chip, process_index = "tpu", "TPU v5 lite", 0, 0

    def __init__(self, number):
        self.id, self.coords = number, (number % 2, number // 2, 0)


@pytest.mark.parametrize("layout", [*map(over, (1, 2, 4, 5, 8)), *LAYOUTS.values()], ids=lambda layout: layout.name)
def test_a_mesh_of_tpus_has_the_devices_in_their_order(monkeypatch, layout):
    """`jax.make_mesh` has another order for four, and fails for five."""
    monkeypatch.setattr(jax, "devices", lambda: [Chip(i) for i in range(8)])
    mesh = mesh_of.__wrapped__(layout)
    assert [chip.id for chip in mesh.devices.ravel()] == list(range(layout.devices))
    assert tuple(mesh.shape.items()) == layout.mesh
