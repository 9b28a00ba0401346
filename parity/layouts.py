"""How a problem lies on a mesh: which axes number the ranks, which shard rows and heads, how tokens are ordered."""

import math
from dataclasses import dataclass, replace

import numpy as np

from parity.shapes import Shape


@dataclass(frozen=True)
class Layout:
    """`mesh`: the axes in the order of the mesh, with their sizes. `axes`: those that number the ranks, major to minor.

    Rows are sharded over the axis `data` and heads over the axis `tensor`, where the mesh has them. `piece_order`:
    which piece of the sequence lies where along T, where that is not the order of the sequence. There every piece
    counts as a rank, so that ranks follow each other in the sequence whatever device they lie on. `manual`: the call is
    made inside a `shard_map` that has made all axes manual.
    `name` stands in test ids: `ragged_on_<name>`. It is empty where all that there is to say is the number of ranks.
    """

    name: str
    mesh: tuple[tuple[str, int], ...]
    axes: tuple[str, ...]
    piece_order: tuple[int, ...] | None = None
    manual: bool = False

    @property
    def devices(self) -> int:
        return math.prod(size for _, size in self.mesh)

    @property
    def holders(self) -> int:
        """Groups of devices that hold other tokens: what numbers `axes`."""
        return math.prod(size for name, size in self.mesh if name in self.axes)

    @property
    def ranks(self) -> int:
        return self.holders if self.piece_order is None else len(self.piece_order)

    @property
    def beside(self) -> tuple[str, ...]:
        """Axes that number no ranks."""
        return tuple(name for name, _ in self.mesh if name not in self.axes)

    def splits(self, shape: Shape) -> bool:
        """Whether the tokens of `shape` can be split over the ranks, its rows over `data`, its heads over `tensor`."""
        sizes = dict(self.mesh)
        return not (shape.T % self.ranks or shape.B % sizes.get("data", 1) or shape.Hk % sizes.get("tensor", 1))

    def holder(self, device: int) -> int:
        """Whose tokens a device holds, by its place in the mesh."""
        names, sizes = zip(*self.mesh, strict=True)
        place = dict(zip(names, np.unravel_index(device, sizes), strict=True))
        size = dict(self.mesh)
        return int(np.ravel_multi_index([place[axis] for axis in self.axes], [size[axis] for axis in self.axes]))

    def place(self, rank: int) -> int:
        """Where along T, counted in shares of a rank, its tokens lie."""
        return rank if self.piece_order is None else self.piece_order.index(rank)

    def holder_of(self, rank: int) -> int:
        return self.place(rank) * self.holders // self.ranks


AXES = ("context",)


def over(ranks: int) -> Layout:
    """That many ranks on the one axis `context`."""
    return Layout("", (("context", ranks),), AXES)


_OUTER_AND_INNER = ("outer", "inner")

TWO_BY_FOUR = Layout("2x4", (("outer", 2), ("inner", 4)), _OUTER_AND_INNER)
FOUR_BY_TWO = Layout("4x2", (("outer", 4), ("inner", 2)), _OUTER_AND_INNER)
ONE_BY_EIGHT = Layout("1x8", (("outer", 1), ("inner", 8)), _OUTER_AND_INNER)
# The ranks are not in the order of the devices. That of two axes is its own inverse; that of three is not.
MINOR_FIRST = Layout("2x4_minor_first", (("inner", 4), ("outer", 2)), _OUTER_AND_INNER)
THREE_TURNED = Layout("2x2x2_turned", (("middle", 2), ("inner", 2), ("outer", 2)), ("outer", "middle", "inner"))
BESIDE_DATA = Layout("2x2_beside_data2", (("data", 2), ("outer", 2), ("inner", 2)), _OUTER_AND_INNER)
AROUND_TENSOR = Layout("2x2_around_tensor2", (("inner", 2), ("tensor", 2), ("outer", 2)), _OUTER_AND_INNER)
BESIDE_BOTH = Layout("2_beside_data2_tensor2", (("data", 2), ("context", 2), ("tensor", 2)), AXES)

SEVERAL_AXES = (TWO_BY_FOUR, FOUR_BY_TWO, ONE_BY_EIGHT, THREE_TURNED, MINOR_FIRST)
BESIDE_OTHERS = (BESIDE_DATA, AROUND_TENSOR, BESIDE_BOTH)

MANUAL = Layout("4_beside_tensor2_manual", (("context", 4), ("tensor", 2)), AXES, manual=True)

# As softmax attention is balanced: rank r of R has pieces r and 2R - 1 - r.
ZIGZAG = Layout("zigzag4", (("context", 4),), AXES, piece_order=(0, 7, 1, 6, 2, 5, 3, 4))
ZIGZAG_MINOR_FIRST = replace(
    ZIGZAG, name="zigzag2x2_minor_first", mesh=(("inner", 2), ("outer", 2)), axes=_OUTER_AND_INNER
)
# As nobody would lay them out: neighbours on one rank and far apart, in no order.
SHUFFLED = Layout("shuffled2", (("context", 2),), AXES, piece_order=(5, 0, 3, 6, 2, 7, 1, 4))

OF_PIECES = (ZIGZAG, ZIGZAG_MINOR_FIRST, SHUFFLED)

LAYOUTS = {layout.name: layout for layout in (*SEVERAL_AXES, *BESIDE_OTHERS, MANUAL, *OF_PIECES)}
