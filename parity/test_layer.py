"""The GatedDeltaNet layer around every rule, in units: outputs, states, and the gradients of all that it is given."""

import re

import numpy as np
import pytest

from oracles.gated_delta_net import QUANTITIES
from parity.faults.edits import Edit
from parity.faults.fault import LEAST, STRUCTURAL
from parity.faults.parts import Seen
from parity.layer import diagnosis
from parity.layer.diagnosis import explain, resembling
from parity.layer.in_bf16 import beyond_rounding
from parity.layer.measure import as_held, blocks, limit_of
from parity.layer.mistake import LAYER, Mistake, planted
from parity.layer.mistakes import BETA, MISTAKES, G
from parity.layer.problem import PADDING, REGIMES, Problem, arguments, truth
from parity.layer.run import AROUND, Around, answer, findings
from parity.report.accuracy import Record

# Each row is a program, but for packing and padding, which are one more each. Which rule at which sizes: every rule and
# every size is met, and no rule depends on the sizes around it.
PROGRAMS = [
    ("sequential", "f64", "two"),
    ("chunked", "f64", "three"),
    ("chunked", "f32", "three"),
    ("chunked", "bf16", "three"),
    ("pallas", "f32", "four"),
    ("fold_4ranks", "f64", "three"),
    ("fold_4ranks", "bf16", "three"),
    ("local_pass_4ranks", "f64", "four"),
]
CASES = [
    *((name, Problem(regime, dtype, sizes)) for name, dtype, sizes in PROGRAMS for regime in REGIMES),
    *(("chunked", Problem("typical", "f64", packing=packing)) for packing in ("in_chunks", "long")),
    *(("fold_4ranks", Problem("typical", "f64", packing=packing)) for packing in ("at_edges", "long")),
    *(("chunked", Problem("typical", "f64", padding=padding)) for padding in PADDING),
    *(("chunked", Problem("typical", "f64", packing="in_chunks", padding=padding)) for padding in ("middle", "mixed")),
]

_explained: dict[tuple[Around, Problem], str] = {}


def _id(name: str, problem: Problem, quantity: str) -> str:
    """As those of the gate, so that what one program serves runs in one worker."""
    values = "_".join(x for x in (quantity, "in", problem.regime, problem.packing, problem.padding) if x)
    return f"{name}-{problem.dtype}-{values}-{problem.sizes}"


@pytest.mark.gate
@pytest.mark.parametrize(
    ("around", "problem", "quantity", "dtype", "ranks"),  # the last two are for a TPU, to say what it cannot do
    [
        pytest.param(
            AROUND[name], problem, quantity, problem.dtype, AROUND[name].ranks, id=_id(name, problem, quantity)
        )
        for name, problem in CASES
        for quantity in QUANTITIES
    ],
)
def test_every_quantity_is_within_its_limit(around, problem, quantity, dtype, ranks, record, request):
    finding = findings(around, problem)[quantity]
    record(
        Record(
            f"layer_of_{around.name}",
            dtype,
            quantity,
            request.node.callspec.id,
            arithmetic=dtype,
            units=finding.units,
            regime=problem.regime,
            limit=finding.limit,
            limit_row=finding.limit_row,
            relative_error=finding.relative_error,
            passes=finding.passes,
        )
    )
    if not finding.passes:
        first = _explained.setdefault((around, problem), quantity)
        why = explain(around, problem) if first == quantity else f"(explained at {first})"
        pytest.fail(f"{finding}\n{why}", pytrace=False)


def test_values_are_what_they_are_said_to_be():
    """Memory is long in some heads and short in others; keys are near the epsilon, and some are 0; no state is 0."""
    typical, long, tiny = (arguments(Problem(regime, "f64")) for regime in REGIMES)
    assert all(x.any() for name, x in typical.items() if "state" in name)
    of_typical, of_long = (
        np.sum(np.exp(x["A_log"]) * np.logaddexp(0, x["x"] @ x["a"] + x["dt_bias"]), axis=1) for x in (typical, long)
    )
    assert of_typical.min() < 10
    assert of_typical.max() > 500
    assert 0.2 < of_long.min() < of_long.max() < 2
    norms = np.linalg.norm(np.tensordot(tiny["x"], tiny["k"], 1), axis=-1)
    assert 1e-4 < np.median(norms) < 1e-2
    assert (norms == 0).any()


# Mistakes that must be seen


@pytest.mark.faults
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_seen_where_it_is_made_and_nowhere_else(mistake, record_mistake):
    found = findings(mistake.around, mistake.problem)
    record_mistake(
        Seen(
            *("layer", mistake.name, mistake.dtype),
            limit=limit_of(mistake.dtype).units,
            units={name: finding.units for name, finding in found.items()},
        )
    )
    wrong = {name: finding.units / finding.limit for name, finding in found.items() if not finding.passes}
    assert set(wrong) == set(mistake.wrong)
    assert min(wrong.values()) > (STRUCTURAL if mistake.dtype == "f64" else LEAST)


@pytest.mark.faults
@pytest.mark.ranks(4)
def test_a_halo_of_zeros_shows_on_every_rank_but_the_first():
    """In the first W - 1 tokens, which are a block of their own."""
    mistake = MISTAKES["halo_zero"]
    pieces = answer(mistake.around, mistake.problem)["y"]
    want = as_held("y", truth(mistake.problem)[0]["y"], pieces)
    off_of_rank = [np.abs(x - y).max() for x, y in zip(pieces, want, strict=True)]
    assert off_of_rank[0] < 1e-14
    assert min(off_of_rank[1:]) > 1e-3


# What names the mistake


def test_a_failure_names_the_mistake_that_it_is():
    """In the values of another regime and around another rule than those that the mistake was tried in."""
    mistaken = planted(MISTAKES["dt_bias_behind_softplus"], AROUND["chunked"])
    few = {name: MISTAKES[name] for name in ("dt_bias_missing", "dt_bias_behind_softplus", "beta_doubled")}
    assert resembling(mistaken, Problem("long_memory", "f32"), few) == ["dt_bias_behind_softplus"]


def test_what_is_no_known_mistake_is_not_named():
    mistaken = planted(MISTAKES["dt_bias_behind_softplus"], AROUND["chunked"])
    few = {name: MISTAKES[name] for name in ("dt_bias_missing", "beta_doubled")}
    assert resembling(mistaken, Problem("long_memory", "f32"), few) == []


def test_a_message_says_what_is_wrong_where_and_by_how_much(monkeypatch):
    monkeypatch.setattr(diagnosis, "MISTAKES", {"halo_zero": MISTAKES["halo_zero"]})
    mistake = MISTAKES["conv_state_off_by_one"]
    first, *lines, last = explain(mistake.around, mistake.problem).splitlines()
    assert first == "sequential_with_conv_state_off_by_one, layer/typical/three in f64"
    assert len(lines) == len(mistake.wrong)
    assert re.fullmatch(r"    \w+ row \d, head \d: \S+ units, limit 32 \(f64\); relative error \S+", lines[0]), lines[0]
    assert last == "none of 0 known mistakes of the layer gives these values"


def test_each_edge_head_and_tap_is_a_block_of_its_own():
    problem = Problem("typical", "f64")
    values, _ = truth(problem)
    shapes = {name: [of.shape for _, (of,) in blocks(problem, name, x)] for name, x in values.items()}
    assert shapes["dx"] == [(2, 3, 1, 10), (2, 97, 1, 10)]
    assert shapes["dconv_k"] == [(4, 1, 2, 8)]
    assert shapes["dout"] == [(1, 1, 6, 60)]
    assert shapes["da"] == [(1, 1, 6, 10)]
    assert shapes["dA_log"] == [(1, 1, 6, 1)]
    assert shapes["final_conv_state_v"] == [(2, 3, 6, 6)]
    assert shapes["drecurrent_state"] == [(2, 1, 6, 48)]
    _, (of,) = blocks(problem, "dq", values["dq"])[0]
    np.testing.assert_array_equal(of[0, 0, 1], values["dq"][:, 1].ravel())


# What a model in bf16 keeps in f32

GATES_OF_X = {
    "g": Edit(LAYER, G, f"rounded({G}, jnp.bfloat16)"),
    "beta": Edit(LAYER, BETA, f"rounded({BETA.strip()}, jnp.bfloat16)\n"),
    "logits": Edit(
        LAYER, "project(wide, parameters[name]) for", "rounded(project(wide, parameters[name]), x.dtype) for"
    ),
}


@pytest.mark.gate
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", ["chunked"])
def test_a_model_in_bf16_rounds_nothing_but_what_it_says(name, regime):
    found = beyond_rounding(AROUND[name], Problem(regime, "bf16"))
    quantity, worst = max(found.items(), key=lambda item: item[1])
    assert worst <= limit_of("bf16").units, f"{quantity}: {worst:.3g} units of 2^-16 beyond the rounding of bf16"


@pytest.mark.parametrize("what", GATES_OF_X)
def test_a_gate_that_is_rounded_to_bf16_is_seen_in_a_model_in_bf16(what):
    """Where within the claim of bf16 it is not: 2^-8 of each decay is as much as is claimed for everything."""
    mistaken = planted(Mistake(f"{what}_of_x", "", (GATES_OF_X[what],), ()), AROUND["sequential"])
    problem = Problem("typical", "bf16")
    assert all(finding.passes for finding in findings(mistaken, problem).values())
    found = beyond_rounding(mistaken, problem)
    for quantity in ("y", "dz", "da", "dout"):
        assert found[quantity] > LEAST * limit_of("bf16").units
