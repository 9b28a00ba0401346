"""The figures that others gave for their context parallelism, beside ours for a shape like theirs, as Markdown.

    python benchmarks/threads_figures.py

Relative errors in the Frobenius norm over whole arrays, in f32 on 4 ranks, as they measured: against one token after
another on one device in f32, and, which they could not say, against the truth.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from implementations import Implementation
from implementations.chunked import CHUNKED
from implementations.context_parallel.three_phase import THREE_PHASE
from implementations.context_parallel.two_phase import TWO_PHASE
from implementations.sequential import SEQUENTIAL
from oracles.gated_delta_rule import GRADIENTS, INPUTS, OUTPUTS, QUANTITIES, float64
from parity.devices import simulate
from parity.problem import Problem
from parity.run import REPLICATED, run
from parity.shapes import Shape

RANKS = 4
LIKE_THEIRS = Shape("like_theirs", B=1, T=1024, Hk=2, Hv=4, K=128, V=128, chunk_size=64)
REGIMES = ("typical", "long_memory")

# As printed by those who measured: thread 1 (two phases, f32, the output), thread 3 (three phases, cp = 4, f32).
THEIRS = {
    "two_phase": {"o": "1.1e-08"},
    "three_phase": {"o": "9.9e-08", "final_state": "1.4e-07"} | dict.fromkeys(GRADIENTS[:5], "2.3e-07 to 4.3e-07"),
}


def main() -> None:
    simulate(8)
    for regime in REGIMES:
        problem = Problem(regime, LIKE_THEIRS, "f32")
        truth, sequential = _truth(problem), _answer(SEQUENTIAL, problem)
        print(f"\n**{regime}, T = {LIKE_THEIRS.T}, K = V = {LIKE_THEIRS.K}, chunks of {LIKE_THEIRS.chunk_size}**\n")
        print(f"| | {' | '.join(QUANTITIES)} |\n|{'---|' * (1 + len(QUANTITIES))}")
        _line("sequential, from the truth", _errors(sequential, truth))
        for implementation in (CHUNKED, TWO_PHASE, THREE_PHASE):
            found = _answer(implementation, problem)
            theirs = THEIRS.get(implementation.name)
            if theirs:
                _line(f"{implementation.name}, theirs", theirs)
            _line(f"{implementation.name}, from sequential", _errors(found, sequential))
            _line(f"{implementation.name}, from the truth", _errors(found, truth))


def _line(what: str, errors: dict[str, str]) -> None:
    print(f"| {what} | {' | '.join(errors.get(q, '') for q in QUANTITIES)} |", flush=True)


def _errors(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> dict[str, str]:
    return {q: f"{np.linalg.norm(found[q] - x) / np.linalg.norm(x):.1e}" for q, x in wanted.items()}


def _answer(implementation: Implementation, problem: Problem) -> dict[str, np.ndarray]:
    pieces = run(implementation, problem, RANKS).pieces
    whole = {q: x[0] if q in REPLICATED else np.concatenate(x, axis=1) for q, x in pieces.items()}
    return {q: x.astype(np.float64) for q, x in whole.items()}


def _truth(problem: Problem) -> dict[str, np.ndarray]:
    exact = {name: x.astype(np.float64) for name, x in problem.arguments.items()}
    outputs = float64.forward(*(exact[name] for name in INPUTS), scale=None)
    gradients = float64.adjoint(*exact.values(), scale=None)
    return dict(zip((*OUTPUTS, *GRADIENTS), (*outputs, *gradients), strict=True))


if __name__ == "__main__":
    main()
