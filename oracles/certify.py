"""Rigorous error bounds of the float64 oracle, on a seeded sample of heads, by ball arithmetic."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from flint import ctx
from jaxtyping import Int

from oracles.gated_delta_rule import INPUTS, QUANTITIES, ball
from oracles.stream import Stream

PILOT_COLUMNS, WORTH_A_PILOT = 2, 64


class Certificate(NamedTuple):
    """`row`, `key_head`: what was sampled, with all value heads of the group. `bits`: the precision it took.

    `bounds[quantity]`: upper bounds of `|float64 oracle - truth|`, `[T, heads, size]`, or `[heads, K, V]` for a state.
    """

    row: int
    key_head: int
    bits: int
    bounds: dict[str, np.ndarray]


def certify(
    arguments: dict[str, np.ndarray],
    values: dict[str, np.ndarray],
    *,
    scale: float | None,
    name: str,
    segment_ids: Int[np.ndarray, "B T"] | None = None,
) -> Certificate:
    """Enclose every quantity of one key head's group, and bound the distance of `values` from the truth.

    `arguments`: the six inputs, `do` and `dfinal_state`; `values`: the eight quantities of the float64 oracle, in the
    shapes of `float64.forward` and `float64.adjoint`; `segment_ids`: of packed documents. `name` seeds the sample.
    """
    batch, _, key_heads, _ = arguments["q"].shape
    group = arguments["v"].shape[2] // key_heads
    stream = Stream(f"certify/{name}")
    row, key_head = int(stream.integers("row", batch)), int(stream.integers("key head", key_heads))

    segments = None if segment_ids is None else segment_ids[row]
    heads = [key_head * group + i for i in range(group)]
    enclosures, bits, bounds = [], ball.FIRST_BITS, {}
    for head in heads:  # what it takes for one is about what it takes for the next
        enclosure, bits = _enclose(arguments, row, key_head, head, scale, bits, segments)
        enclosures.append(enclosure)
    for quantity in QUANTITIES:
        balls = [enclosure[quantity] for enclosure in enclosures]
        if quantity in ("dq", "dk"):
            with ctx.workprec(bits):
                group_sum = sum(balls[1:], balls[0])
            bounds[quantity] = ball.distance(values[quantity][row, :, key_head], group_sum)[:, None]
        elif quantity in ("final_state", "dh0"):
            found = [ball.distance(values[quantity][row, h], b) for h, b in zip(heads, balls, strict=True)]
            bounds[quantity] = np.stack(found)
        else:
            found = [ball.distance(values[quantity][row, :, h], b) for h, b in zip(heads, balls, strict=True)]
            bounds[quantity] = np.stack([x.reshape(len(x), -1) for x in found], axis=1)
    return Certificate(row, key_head, bits, bounds)


def _enclose(
    arguments: dict[str, np.ndarray],
    row: int,
    key_head: int,
    head: int,
    scale: float | None,
    bits: int,
    segments: np.ndarray | None,
) -> tuple[dict[str, ball.arb_mat], int]:
    """All quantities of one value head as tight balls, dq and dk as this head's share, with `bits` or more."""
    one = {
        name: x[row, :, key_head if name in ("q", "k") else head]
        for name, x in arguments.items()
        if name not in _STATES
    }
    one |= {name: arguments[name][row, head] for name in _STATES}

    def balls(columns: slice) -> Callable[[int], tuple[ball.arb_mat, ...]]:
        given = [x[..., columns] if name in _OF_VALUES else x for name, x in one.items()]
        named = dict(zip(one, given, strict=True))
        ordered = [named[name] for name in (*INPUTS, "do", "dfinal_state")]
        return lambda bits: ball.forward_and_adjoint(*ordered, scale=scale, bits=bits, segment_ids=segments)

    if bits == ball.FIRST_BITS and one["v"].shape[-1] >= WORTH_A_PILOT:
        # Columns of the state know nothing of each other, and radii grow in all of them alike: a few say how many bits
        # it takes. All of them are then asked to be tight.
        _, bits = ball.enclose(balls(slice(PILOT_COLUMNS)))
        bits += 8 * (bits > ball.FIRST_BITS)
    result, bits = ball.enclose(balls(slice(None)), bits=bits)
    return dict(zip(QUANTITIES, result, strict=True)), bits


_STATES = ("initial_state", "dfinal_state")
_OF_VALUES = ("v", "do", *_STATES)
