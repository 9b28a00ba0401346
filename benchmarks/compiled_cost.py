"""What context parallelism costs, from compiled programs: `python benchmarks/compiled_cost.py`, two minutes.

Prints the tables of docs/compiled_cost.md. Nothing is run: FLOPs are counted in the optimised programs
(`parity/compiled/flops.py`) beside their formulas (`parity/compiled/formulas.py`), and memory is what
`memory_analysis()` says that one device holds at most, beside inputs and outputs.
"""

import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from implementations.context_parallel.affine import fold
from implementations.context_parallel.exchange import EXCHANGES
from implementations.context_parallel.reverse_fold import reverse_fold
from implementations.context_parallel.three_phase import local_pass
from implementations.context_parallel.two_phase import two_phase
from parity.compiled import formulas
from parity.compiled.flops import flops
from parity.compiled.other_folds import associative_fold, without_checkpoint
from parity.compiled.programs import MapOfRank, Sizes, adjoint_pass, core, map_of_a_rank, scheme, temporaries
from parity.devices import simulate

HEAD = Sizes(N=4, C=64, K=128, V=128)  # the chunk and the head of Qwen3-Next
K, V = HEAD.K, HEAD.V
STATE = 4 * K * V  # bytes
FOLDS = (fold, local_pass, reverse_fold)
WAYS: dict[str, MapOfRank] = {
    **{function.__name__: function for function in FOLDS},
    **{f"{function.__name__} without checkpoint": without_checkpoint(function) for function in FOLDS},
    "associative scan": associative_fold,
}
CANDIDATES = {
    "fold": lambda C: formulas.fold(C, K, V),
    "local_pass": lambda C: formulas.local_pass(C, K, V),
    "reverse_fold": lambda C: formulas.reverse_fold(C, K, V),
    "reverse_fold of pairs of chunks": lambda C: formulas.reverse_fold(C, K, V) + 2 * C * C * K + C * C * V,
    "M, and Q' M to correct outputs": lambda C: 4 * C * K * K + 2 * C * C * K + 2 * C * K * K + 2 * C * K * V,
    "M, and a second state to correct outputs": lambda C: 4 * C * K * K + 2 * C * C * K + 6 * C * K * V,
    "M alone": lambda C: 4 * C * K * K,
    "ring of states": lambda C: 0,
}
THREAD_1 = 262_144 // 64 * 32  # chunks and heads, if its heads are 32 and all on one device

Row = tuple[Any, ...]


def main() -> None:
    simulate(8)
    table("MFLOP a chunk and head, forward", "C|map|counted|formula|over the core", of_maps(backward=False))
    table("MFLOP a chunk and head, with the backward", "C|map|counted|formula|over the core", of_maps(backward=True))
    table("Exact ways to do it, by formula, MFLOP a chunk and head, forward", "way|C = 64|C = 128", of_candidates())
    table("two_phase over chunked on 4 ranks", "chunks a rank|cost_analysis() says|it is", of_the_compiler())
    table("MFLOP a rank and head for an exchange, forward", "exchange|R|counted|formula", of_exchanges())
    table("Over the core, mean of all ranks", "R|all fold|not the last|nor the first|while waiting", of_ranks())
    table("States that a device holds, 32 chunks of a head", "map|R = 1|2|4|8|another rank", by_ranks())
    table("States of another chunk, the map alone", "map|forward|with the backward|GB in thread 1", of_chunks())
    table("States of another chunk, all of two_phase", "map|with the backward|GB in thread 1", of_programs())


def of_maps(*, backward: bool) -> Iterator[Row]:
    for C in (64, 128):
        sizes = HEAD._replace(C=C)
        known = formulas.core(C, K, V, backward=backward)
        yield C, "the core", mega(count(core(sizes, backward=backward)) / HEAD.N), mega(known), ""
        for function in FOLDS:
            found = count(map_of_a_rank(function, sizes, backward=backward)) / HEAD.N
            formula = getattr(formulas, function.__name__)(C, K, V, backward=backward)
            yield C, function.__name__, mega(found), mega(formula), percent(found / known)
        if backward:
            found = (count(map_of_a_rank(reverse_fold, sizes)) + count(adjoint_pass(sizes))) / HEAD.N
            formula = formulas.reverse_fold(C, K, V) + formulas.adjoint_pass(C, K, V)
            yield C, "reverse_fold, adjoint_pass", mega(found), mega(formula), percent(found / known)


def of_candidates() -> Iterator[Row]:
    for name, cost in CANDIDATES.items():
        yield name, *(f"{mega(cost(C))}, {percent(cost(C) / formulas.core(C, K, V))}" for C in (64, 128))


def of_the_compiler() -> Iterator[Row]:
    for N in (4, 16, 64):
        sizes = HEAD._replace(N=N)
        programs = core(sizes), scheme(two_phase, sizes, 4)
        said = [program.cost_analysis()["flops"] for program in programs]
        found = [count(program) for program in programs]
        yield N, percent(said[1] / said[0] - 1), percent(found[1] / found[0] - 1)


def of_exchanges() -> Iterator[Row]:
    chunks = HEAD.N * (formulas.core(HEAD.C, K, V) + formulas.fold(HEAD.C, K, V))
    for name, exchange in EXCHANGES.items():
        for ranks in (4, 8):
            found = count(scheme(functools.partial(two_phase, exchange=exchange), HEAD, ranks)) - chunks
            yield name, ranks, mega(found), mega(formulas.exchange(name, ranks, K, V))


def of_ranks() -> Iterator[Row]:
    """By formula. Of a `reverse_fold`; a rank that waits for its state folds no more than it has the time for."""
    folding = formulas.reverse_fold(HEAD.C, K, V)
    stepping = 4 * HEAD.C * K * V  # the state through a chunk, without its outputs
    extra = folding / formulas.core(HEAD.C, K, V)
    for ranks in (2, 4, 8, 64):
        entered, shares = float(stepping), []  # after the first rank has stepped through all of its own
        for _ in range(ranks - 2):
            shares.append(min(1.0, entered / folding))
            entered += (1 - shares[-1]) * stepping
        yield (
            ranks,
            *(percent(extra * folds / ranks) for folds in (ranks, ranks - 1, ranks - 2, sum(shares))),
        )


def by_ranks() -> Iterator[Row]:
    for function in FOLDS:
        call = functools.partial(two_phase, map_of_rank=function)
        held = [temporaries(scheme(call, HEAD._replace(N=32), R, backward=True)) / STATE for R in (1, 2, 4, 8)]
        yield function.__name__, *(f"{states:.1f}" for states in held), f"{(held[3] - held[1]) / 6:.2f}"


def of_chunks() -> Iterator[Row]:
    for name, function in WAYS.items():
        forward, both = (
            slope(*(map_of_a_rank(function, HEAD._replace(N=N), backward=backward) for N in (8, 16)))
            for backward in (False, True)
        )
        yield name, f"{forward:.1f}", f"{both:.1f}", giga(both)


def of_programs() -> Iterator[Row]:
    chunked = slope(*(core(HEAD._replace(N=N), backward=True) for N in (8, 16)))
    yield "none: chunked, on one device", f"{chunked:.1f}", giga(chunked)
    for name, function in WAYS.items():
        call = functools.partial(two_phase, map_of_rank=function)
        states = slope(*(scheme(call, HEAD._replace(N=N), 2, backward=True) for N in (8, 16)))
        yield name, f"{states:.1f}", giga(states)


def slope(few: Any, many: Any) -> float:
    """States that another chunk takes, from the programs for 8 and 16."""
    return (temporaries(many) - temporaries(few)) / 8 / STATE


def count(compiled: Any) -> int:
    return flops(compiled.as_text()).total


def mega(number: float) -> str:
    return f"{number / 1e6:.2f}"


def giga(states: float) -> str:
    return f"{states * STATE * THREAD_1 / 1e9:.1f}"


def percent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"


def table(title: str, columns: str, rows: Iterable[Row]) -> None:
    """As Markdown, row by row."""
    print(f"\n**{title}**\n\n| {' | '.join(columns.split('|'))} |")
    print("|---" * len(columns.split("|")) + "|")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |", flush=True)


if __name__ == "__main__":
    main()
