"""What XLA's partitioner makes of a causal convolution, by how it is written: `python benchmarks/convolution_halos.py`.

Prints the tables of docs/context_parallel.md: the tokens that the permutes of the outputs carry, and those of the
outputs and all gradients, on four ranks; and the tokens that a rank holds after a gather, or that are summed. Exits
with 1 where an output is wrong. `gspmd_conv` is the first of each table.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

sys.path.insert(0, str(Path(__file__).parents[1]))

from implementations.causal_conv import causal_conv, taps
from parity.compiled.collectives import collectives
from parity.devices import simulate

RANKS, B, T, D, W = 4, 2, 52, 6, 4
HALO, HELD = W - 1, T // RANKS

Form = Callable[[Any, Any, Any], Any]


def main() -> int:
    simulate(RANKS)
    mesh = jax.make_mesh((RANKS,), ("context",), axis_types=(AxisType.Auto,))
    wrong = 0
    for quantity, forms in (("y", Y), ("final state", FINAL_STATE)):
        print(f"\n{quantity + f' ({T} tokens)':56}{'forward':24}with all gradients")
        for name, form in forms.items():
            wrong += not is_right(form, quantity)
            print(f"{name:56}" + "".join(f"{moved(form, quantity, mesh, back):24}" for back in (False, True)))
    return int(wrong > 0)


def moved(form: Form, quantity: str, mesh: Mesh, backward: bool) -> str:
    of_tokens, of_all = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in ((None, "context"), ()))
    out = of_tokens if quantity == "y" else of_all
    laid_out = partial(jax.lax.with_sharding_constraint, shardings=of_tokens)

    def output(x: Any, weight: Any, state: Any) -> Any:
        return form(laid_out(x), weight, state)

    def and_gradients(x: Any, weight: Any, state: Any, cotangent: Any) -> Any:
        result, pullback = jax.vjp(output, x, weight, state)
        return result, pullback(cotangent)

    def array(sharding: NamedSharding, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    x, weight, state = array(of_tokens, B, T, D), array(of_all, D, W), array(of_all, B, HALO, D)
    if backward:
        program = jax.jit(and_gradients, out_shardings=(out, (of_tokens, of_all, of_all)))
        lowered = program.lower(x, weight, state, x if quantity == "y" else state)
    else:
        lowered = jax.jit(output, out_shardings=out).lower(x, weight, state)
    found = collectives(lowered.compile().as_text())
    tokens = {"sent": 0, "gathered": 0, "summed": 0}
    verbs = {"collective-permute": "sent", "all-gather": "gathered", "all-reduce": "summed"}
    for each in found:
        for shape in each.shapes:
            if shape[0] == B and shape[-1] == D:  # and not a gradient of the weight
                tokens[verbs[each.kind]] += int(np.prod(shape)) // (B * D)
    if backward and quantity == "y":
        tokens["summed"] = max(0, tokens["summed"] - HALO)  # the gradient of the initial state, in each of them
    return ", ".join(f"{count} {verb}" for verb, count in tokens.items() if count) or "0"


def is_right(form: Form, quantity: str) -> bool:
    draw = np.random.default_rng(0)
    x, weight, state = (jnp.asarray(draw.normal(size=shape)) for shape in ((B, T, D), (D, W), (B, HALO, D)))
    wanted = causal_conv(x, weight, state)[0 if quantity == "y" else 1]
    return bool(np.allclose(form(x, weight, state), wanted, atol=1e-5))


# y


def padded(x: Any, weight: Any, before: int) -> Any:
    return jax.lax.conv_general_dilated(
        *(x, weight.T[:, None], (1,), [(before, 0)]),
        dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=D,
    )


def of_state(weight: Any, state: Any) -> Any:
    return taps(jnp.concatenate([state, jnp.zeros_like(state)], axis=1), weight)


def at_indices(x: Any, weight: Any, state: Any) -> Any:
    return padded(x, weight, HALO).at[:, jnp.arange(HALO)].add(of_state(weight, state))


def to_a_slice(x: Any, weight: Any, state: Any) -> Any:
    return padded(x, weight, HALO).at[:, :HALO].add(of_state(weight, state))


def padded_state(x: Any, weight: Any, state: Any) -> Any:
    return padded(x, weight, HALO) + jnp.pad(of_state(weight, state), ((0, 0), (0, T - HALO), (0, 0)))


def joined(x: Any, weight: Any, state: Any) -> Any:
    return padded(jnp.concatenate([state, x], axis=1), weight, 0)


def joined_slices(x: Any, weight: Any, state: Any) -> Any:
    return taps(jnp.concatenate([state, x], axis=1), weight)


def padded_slices(x: Any, weight: Any, state: Any) -> Any:
    y = taps(jnp.pad(x, ((0, 0), (HALO, 0), (0, 0))), weight)
    return y.at[:, jnp.arange(HALO)].add(of_state(weight, state))


def one_by_one(later: Callable[[Any, int], Any], x: Any, weight: Any, state: Any) -> Any:
    y = sum(weight[:, j] * later(x, HALO - j) for j in range(W))
    return y.at[:, jnp.arange(HALO)].add(of_state(weight, state))


def by_a_pad(x: Any, by: int, axis: int = 1) -> Any:
    config = [(by, -by, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)]
    return jax.lax.pad(x, jnp.zeros((), x.dtype), config)


def by_a_roll(x: Any, by: int) -> Any:
    return jnp.where(jnp.arange(T)[:, None] < by, 0, jnp.roll(x, by, axis=1))


def in_blocks(x: Any, weight: Any, state: Any) -> Any:
    blocks = x.reshape(B, RANKS, HELD, D)
    first = jnp.arange(RANKS)[:, None, None] == 0
    before = jnp.where(first, state[:, None], by_a_pad(blocks[:, :, HELD - HALO :], 1))
    tokens = jnp.concatenate([before, blocks], axis=2)
    return sum(weight[:, j] * tokens[:, :, j : j + HELD] for j in range(W)).reshape(x.shape)


Y: dict[str, Form] = {
    "a padded convolution, the state's part added at indices": at_indices,
    "the same, the state's part added to a slice": to_a_slice,
    "the same, the state's part padded to T": padded_state,
    "a convolution of [state | x]": joined,
    "shifted slices of [state | x]": joined_slices,
    "shifted slices of x after W - 1 zeros": padded_slices,
    "x shifted by 1, 2 and 3 tokens, each by one pad": partial(one_by_one, by_a_pad),
    "x rolled by 1, 2 and 3 tokens": partial(one_by_one, by_a_roll),
    "x in blocks of a rank, their ends shifted by one pad": in_blocks,
}
FINAL_STATE: dict[str, Form] = {
    "x at the last W - 1 indices": lambda x, weight, state: x.at[:, jnp.arange(T - HALO, T)].get(),
    "x sliced": lambda x, weight, state: x[:, T - HALO :],
}

if __name__ == "__main__":
    sys.exit(main())
