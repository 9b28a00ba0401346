"""What a recurrent state in bf16 costs, by how long a sequence is: `python benchmarks/bf16_state.py`.

Decodes 16,384 tokens with a model in f32, one scan over `decode.step`, once with its recurrent state in f32 and once
with the state rounded to bf16 behind each step, beside the same in f64 (which the gate holds to the oracle, in
parity/test_continuation.py). Prints the table of docs/layer.md, and writes docs/images/bf16_state.svg. Units are those
of f32: `rms(h - h64) / (2^-24 kappa + 2^-24 rms(h64))`, kappa the response to relative perturbations of every input, of
every parameter and, in each step, of the state.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from implementations.decode import step
from implementations.layer_sizes import CONV_STATE, Sizes
from oracles.gated_delta_net import INPUTS, inputs_of, shapes
from oracles.stream import Stream
from parity.unit import block_rms

SIZES = Sizes(D=24, Hk=2, Hv=4, K=16, V=16, W=4)
TOKENS = 16384
COUNTS = tuple(4**i for i in range(8))  # 1, 4, ... 16384
PROBES, STEP = 8, 2.0**-20
U = 2.0**-24
MEMORY = (4, 64, 1024, 16384)  # tokens, 1 / mean |g|, by value head
ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "bf16_state.svg"

STATES = {"f32": lambda h: h, "bf16": lambda h: jax.lax.reduce_precision(h, 8, 7)}


def main() -> None:
    given = values()
    with jax.enable_x64(True):
        want, y64, kappa = in_float64(given)
    silent = np.zeros((TOKENS, 0), np.float32)
    found = {
        name: [np.asarray(x, np.float64) for x in decoded(given, silent, narrow)] for name, narrow in STATES.items()
    }

    print(f"{'':8}" + "".join(f"{f'state in {name}':^40}" for name in STATES))
    columns = ("state", "y", "units", "worst head")
    print(f"{'tokens':>8}" + "".join(f"{column:>10}" for _ in STATES for column in columns))
    for i, count in enumerate(COUNTS):
        line = f"{count:8}"
        for h, y in found.values():
            by_head = in_units(h[i], want[i], kappa[i])
            line += f"{relative(h[i], want[i]):10.1e}{relative(y[i], y64[i]):10.1e}"
            line += f"{np.sqrt(np.mean(by_head**2)):10.3g}{by_head.max():10.3g}"
        print(line)
    errors = {
        name: [[relative(h[i][:, head], want[i][:, head]) for i in range(len(COUNTS))] for head in range(SIZES.Hv)]
        for name, (h, _) in found.items()
    }
    print("\nrelative error of the state, by the memory of the head in tokens")
    print(f"{'tokens':>8}" + "".join(f"{f'{name}, {memory}':>13}" for name in errors for memory in MEMORY))
    for i, count in enumerate(COUNTS):
        print(f"{count:8}" + "".join(f"{of_head[i]:13.1e}" for heads in errors.values() for of_head in heads))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(errors), encoding="utf-8")
    print(f"\nwritten to {PICTURE.relative_to(ROOT)}")


def values() -> dict[str, np.ndarray]:
    """`INPUTS`, in f32: tokens with a common part, and heads that remember from 4 to 16,384 tokens."""
    stream, sizes = Stream("bf16 state"), SIZES
    of = shapes(B=1, T=TOKENS, D=sizes.D, Hk=sizes.Hk, Hv=sizes.Hv, K=sizes.K, V=sizes.V, W=sizes.W)
    scale = dict.fromkeys(("q", "k", "v", "z", "a", "b"), sizes.D**-0.5)
    scale |= {f"conv_{name}": 0.5 for name in CONV_STATE} | {"norm": 0.3, "out": (sizes.Hv * sizes.V) ** -0.5}
    drawn = {name: scale.get(name, 1.0) * stream.normal(name, *of[name]) for name in INPUTS}
    drawn["norm"] += 1
    drawn["x"] = 0.7 * stream.normal("common", sizes.D) + 0.7 * drawn["x"]
    drawn["dt_bias"] = np.ones(sizes.Hv)
    dt = np.logaddexp(0, drawn["x"] @ drawn["a"] + 1).mean(axis=(0, 1))
    drawn["A_log"] = -np.log(np.array(MEMORY) * dt)
    return {name: x.astype(np.float32) for name, x in drawn.items()}


@partial(jax.jit, static_argnames="narrow")
def decoded(given: Mapping[str, jax.Array], noise: jax.Array, narrow: Any = None) -> tuple[jax.Array, jax.Array]:
    """The state and the output behind each of `COUNTS` tokens; `noise [T, ...]` moves the state behind each step."""
    x, parameters, *states = inputs_of(given)

    def one(states: Any, token: Any) -> Any:
        x, noise = token
        y, conv_state, h = step(parameters, x, *states)
        h = h * (1 + noise) if narrow is None else narrow(h)
        return (conv_state, h), (h, y)

    _, outputs = jax.lax.scan(one, tuple(states), (jnp.moveaxis(x, 1, 0), noise))
    return jax.tree.map(lambda x: x[np.array(COUNTS) - 1], outputs)


def in_float64(given: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(states, outputs, kappa of the states)` behind each of `COUNTS` tokens."""
    exact = {name: x.astype(np.float64) for name, x in given.items()}
    still = np.zeros((TOKENS, 1, SIZES.Hv, SIZES.K, SIZES.V))
    h, y = map(np.asarray, decoded(exact, still))
    squares = np.zeros_like(h)
    for probe in range(PROBES):
        stream = Stream(f"bf16 state/{probe}")
        moved = {name: x * (1 + STEP * stream.signs(name, *x.shape)) for name, x in exact.items()}
        noise = STEP * np.random.default_rng(probe).choice([-1.0, 1.0], still.shape)
        squares += ((np.asarray(decoded(moved, noise)[0]) - h) / STEP) ** 2
    return h, y, np.sqrt(squares / PROBES)


def in_units(got: np.ndarray, want: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    """By head."""
    error, moves, size = (block_rms(x.reshape(1, 1, SIZES.Hv, -1))[0, 0] for x in (got - want, kappa, want))
    return np.asarray(error / (U * moves + U * size))


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


# The picture

LEFT, TOP, WIDTH, HEIGHT = 70, 24, 520, 300
DECADES = (-8, -1)
INK, GRID = "#333", "#ddd"
COLOURS = {"f32": ("#9aa7bd", "#7488ac", "#4a659c", "#1a3472"), "bf16": ("#e0c48a", "#d6a53c", "#b97a10", "#7a4a00")}


def picture(errors: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Relative error of the state over tokens, a line for each head, both axes logarithmic."""
    right, bottom = LEFT + WIDTH, TOP + HEIGHT

    def across(i: float) -> float:
        return LEFT + WIDTH * i / (len(COUNTS) - 1)

    def down(error: float) -> float:
        low, high = DECADES
        return bottom - HEIGHT * (np.log10(error) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + 170}" height="{bottom + 56}" role="img" '
        'font-family="sans-serif" font-size="12">',
        "<title>Relative error of the recurrent state over tokens, with the state in f32 and in bf16</title>",
        f'<rect width="{right + 170}" height="{bottom + 56}" fill="#fff"/>',
    ]
    for decade in range(DECADES[0], DECADES[1] + 1):
        y = down(10.0**decade)
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">1e{decade}</text>')
    for i, count in enumerate(COUNTS):
        text = f'<text x="{across(i):.1f}" y="{bottom + 18}" text-anchor="middle" fill="{INK}">{count}</text>'
        parts += [f'<line x1="{across(i):.1f}" x2="{across(i):.1f}" y1="{TOP}" y2="{bottom}" stroke="{GRID}"/>', text]
    parts.append(f'<text x="{LEFT + WIDTH / 2}" y="{bottom + 42}" text-anchor="middle" fill="{INK}">tokens</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 8}" fill="{INK}">relative error of the recurrent state</text>')
    for order, (name, heads) in enumerate(reversed(errors.items())):
        for head, of_head in enumerate(heads):
            points = " ".join(f"{across(i):.1f},{down(error):.1f}" for i, error in enumerate(of_head))
            colour, y = COLOURS[name][head], TOP + 14 + 18 * (head + 5 * order)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
            ends = f'x1="{right + 14}" x2="{right + 38}" y1="{y - 4}" y2="{y - 4}"'
            parts.append(f'<line {ends} stroke="{colour}" stroke-width="2"/>')
            parts.append(f'<text x="{right + 44}" y="{y}" fill="{INK}">{name}, {MEMORY[head]} tokens</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
