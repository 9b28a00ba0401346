"""For each property code that lacks it, and otherwise is as right as the oracle: the proof that the property can fail.

Each is the float64 oracle with its inputs or its results changed by one part in a thousand million, or by less where
the property is about bits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.sharding import Mesh

from implementations.contract import Implementation
from oracles.affine_composition import float64 as maps
from oracles.gated_delta_rule import GRADIENTS, INPUTS, OUTPUTS, float64
from parity.properties import causality, composition, invariance, pairings, segments, symmetries
from parity.properties.composition import Composer
from parity.properties.hold import Property
from parity.properties.subjects import Subject

Named = dict[str, np.ndarray]

SLIGHTLY = 1 + 1e-9


def _as_given(x: Named, **_: Any) -> Named:
    return x


def _subject(
    name: str,
    *,
    inputs: Callable[..., Named] = _as_given,
    results: Callable[..., Named] = _as_given,
    context_parallel: bool = False,
) -> Subject:
    """The oracle of `inputs(x, chunk_size, ranks)`, its outputs and gradients as `results` changes them."""

    def changed(x: tuple[Any, ...], chunk_size: int, mesh: Mesh | None) -> Named:
        named = dict(zip(INPUTS, (np.asarray(a) for a in x), strict=False))
        return inputs(named, chunk_size=chunk_size, ranks=mesh.size if mesh else 1)

    def call(*x: Any, scale: float | None, chunk_size: int, mesh: Any = None, axes: Any = None) -> tuple[Any, ...]:
        outputs = float64.forward(*changed(x, chunk_size, mesh).values(), scale=scale)
        return tuple(results(dict(zip(OUTPUTS, outputs, strict=True))).values())

    def vjp(*x: Any, scale: float | None, chunk_size: int, mesh: Any = None, axes: Any = None) -> tuple[Any, ...]:
        gradients = float64.adjoint(*changed(x[:6], chunk_size, mesh).values(), *x[6:], scale=scale)
        return tuple(results(dict(zip(GRADIENTS, gradients, strict=True))).values())

    return Subject(
        Implementation(
            name, call, vjp=vjp, traceable=False, arithmetic={"f64": "f64"}, context_parallel=context_parallel
        ),
        "f64",
    )


def _scaled(**factors: float) -> Callable[[Named], Named]:
    return lambda x: {name: factors.get(name, 1.0) * a for name, a in x.items()}


def _gates_of_the_next_token(x: Named) -> Named:
    return x | {"dg": np.roll(x["dg"], 1, axis=1)} if "dg" in x else x


def _values_squared(x: Named, **_: Any) -> Named:
    return x | {"v": x["v"] + 1e-9 * x["v"] ** 2}


def _keys_of_one_sign(x: Named, **_: Any) -> Named:
    return x | {"k": x["k"] + 1e-12 * np.abs(x["k"])}


def _keys_normalised(x: Named, **_: Any) -> Named:
    return x | {"k": x["k"] / np.sqrt(np.sum(x["k"] ** 2, axis=-1, keepdims=True) * 1e-9 + 1)}


def _first_channel_scaled(x: Named, **_: Any) -> Named:
    return x | {"k": np.concatenate([SLIGHTLY * x["k"][..., :1], x["k"][..., 1:]], axis=-1)}


def _gate_of_all_heads(x: Named, **_: Any) -> Named:
    return x | {"g": x["g"] + 1e-9 * x["g"].mean(axis=(0, 2), keepdims=True)}


def _value_of_the_next_token(x: Named, **_: Any) -> Named:
    return x | {"v": x["v"] + 1e-12 * np.roll(x["v"], -1, axis=1)}


def _gradient_of_the_token_before(x: Named) -> Named:
    return {name: a + 1e-9 * np.roll(a, 1, axis=1) if name == "dv" else a for name, a in x.items()}


def _initial_state_forgotten(x: Named, **_: Any) -> Named:
    return x | {"initial_state": (1 - 1e-9) * x["initial_state"]}


def _decay_of_every_token(x: Named, **_: Any) -> Named:
    return x | {"g": x["g"] - 1e-9}


def _decay_at_chunk_edges(x: Named, *, chunk_size: int, ranks: int) -> Named:
    return x | {"g": x["g"] - 1e-9 * (np.arange(x["g"].shape[1]) % chunk_size == 0)[None, :, None]}


def _decay_at_rank_edges(x: Named, *, chunk_size: int, ranks: int) -> Named:
    return _decay_at_chunk_edges(x, chunk_size=x["g"].shape[1] // ranks, ranks=1)


def _composed_askew(later: tuple[Any, Any], earlier: tuple[Any, Any]) -> tuple[Any, Any]:
    A, B = maps.compose(later, earlier)
    return A, B + 1e-9 * later[1]


def _never_quite_the_same(later: tuple[Any, Any], earlier: tuple[Any, Any]) -> tuple[Any, Any]:
    A, B = maps.compose(later, earlier)
    return A * (1 + 1e-15), B


def _composer(name: str, compose: composition.Compose) -> Composer:
    return Composer(name, compose, "f64", compiles=False)


BROKEN: dict[Property, Subject | Composer] = {
    pairings.outputs_pair_as_inputs_do: _subject("dh0_scaled", results=_scaled(dh0=SLIGHTLY)),
    pairings.keys_balance_values: _subject("dbeta_scaled", results=_scaled(dbeta=SLIGHTLY)),
    pairings.queries_pair_as_outputs_do: _subject("dq_scaled", results=_scaled(dq=SLIGHTLY)),
    pairings.gates_pair_with_states: _subject("gates_of_the_next_token", results=_gates_of_the_next_token),
    symmetries.superposition: _subject("values_squared", inputs=_values_squared),
    symmetries.flip: _subject("keys_of_one_sign", inputs=_keys_of_one_sign),
    symmetries.rescaled_keys: _subject("keys_normalised", inputs=_keys_normalised),
    symmetries.rotation: _subject("first_channel_scaled", inputs=_first_channel_scaled),
    symmetries.independence: _subject("gate_of_all_heads", inputs=_gate_of_all_heads),
    causality.outputs_do_not_see_later_tokens: _subject("value_of_the_next_token", inputs=_value_of_the_next_token),
    causality.gradients_do_not_see_earlier_cotangents: _subject(
        "gradient_of_the_token_before", results=_gradient_of_the_token_before
    ),
    segments.state_passing: _subject("initial_state_forgotten", inputs=_initial_state_forgotten),
    segments.padding_behind: _subject("decay_of_every_token", inputs=_decay_of_every_token),
    segments.padding_in_front: _subject("decay_of_every_token", inputs=_decay_of_every_token),
    invariance.chunk_size: _subject("decay_at_chunk_edges", inputs=_decay_at_chunk_edges),
    invariance.rank_count: _subject("decay_at_rank_edges", inputs=_decay_at_rank_edges, context_parallel=True),
    composition.associativity: _composer("composed_askew", _composed_askew),
    composition.identity: _composer("never_quite_the_same", _never_quite_the_same),
}
