"""The GatedDeltaNet layer around every rule, in units: outputs, states, and the gradients of all that it is given."""

import numpy as np
import pytest

from oracles.gated_delta_net import QUANTITIES
from parity.faults.fault import LEAST, STRUCTURAL
from parity.layer.diagnosis import explain, resembling
from parity.layer.in_bf16 import KNOWN, beyond_rounding
from parity.layer.measure import blocks
from parity.layer.mistakes import MISTAKES, planted
from parity.layer.problem import PADDING, REGIMES, Problem, arguments, truth
from parity.layer.run import AROUND, Around, findings

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
    ("around", "problem", "quantity"),
    [
        pytest.param(AROUND[name], problem, quantity, id=_id(name, problem, quantity))
        for name, problem in CASES
        for quantity in QUANTITIES
    ],
)
def test_every_quantity_is_within_its_limit(around, problem, quantity):
    finding = findings(around, problem)[quantity]
    if not finding.passes:
        first = _explained.setdefault((around, problem), quantity)
        why = explain(around, problem) if first == quantity else f"(explained at {first})"
        pytest.fail(f"{finding}\n{why}", pytrace=False)


def test_values_are_what_they_are_said_to_be():
    """Memory is long in some heads and short in others; keys are near the epsilon, and some are 0; no state is 0."""
    typical, long, tiny = (arguments(Problem(regime, "f64")) for regime in REGIMES)
    assert all(x.any() for name, x in typical.items() if "state" in name)
    for values, least, most in ((typical, 0.05, 10), (long, 0.002, 0.02)):
        g = np.exp(values["A_log"]) * np.logaddexp(0, values["x"] @ values["a"] + values["dt_bias"])
        assert g.mean(axis=(0, 1)).min() < least
        assert g.mean(axis=(0, 1)).max() < most
    norms = np.linalg.norm(np.tensordot(tiny["x"], tiny["k"], 1), axis=-1)
    assert 1e-4 < np.median(norms) < 1e-2
    assert (norms == 0).any()


# Mistakes that must be seen


@pytest.mark.faults
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_seen_where_it_is_made_and_nowhere_else(mistake):
    found = findings(mistake.around, mistake.problem)
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
    off_of_rank = [rms(x - y) for x, y in zip(pieces, want, strict=True)]
    assert off_of_rank[0] < 1e-14
    assert min(off_of_rank[1:]) > 1e-3
