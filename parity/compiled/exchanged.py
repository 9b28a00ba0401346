"""`python -m parity exchanged`: what each context-parallel implementation exchanges, counted in its program."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import implementations
from implementations.contract import Implementation
from parity.compiled.collectives import collectives
from parity.compiled.depth import depth
from parity.compiled.programs import over_layout
from parity.devices import simulate
from parity.layouts import over
from parity.load import CannotLoad, load
from parity.shapes import Shape
from parity.tolerances.provenance import provenance

RANKS = 8
# No two sizes are the same, and none is T or a rank's part of it.
B, H, K, V, CHUNK_SIZE = 1, 2, 12, 20, 8
TOKENS = RANKS * 13


@dataclass(frozen=True)
class Exchanged:
    """Of the outputs, and of the outputs with all gradients: `depth`, how many collectives wait for one another;
    `elements` that arrive at ranks from others, all ranks together, for a row and head; `growing`, whether they are
    more where the sequence is twice as long. `problem`: why nothing is known.
    """

    implementation: str
    ranks: int
    key_size: int
    value_size: int
    depth: list[int] | None
    elements: list[float] | None
    growing: bool | None
    problem: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        f"Compile every context-parallel implementation for {RANKS} ranks, and print what it exchanges: how many "
        "collectives wait for one another, how many elements travel, and whether that grows with the sequence. "
        "Written to exchanged.json, which `python -m parity report` shows."
    )
    parser.add_argument("--implementation", action="append", default=[], metavar="FILE.py:NAME", help="as of pytest")
    parser.add_argument("--output", type=Path, default=Path("build/parity"), metavar="DIR")


def main(arguments: argparse.Namespace) -> int:
    """0, also where one cannot be compiled, which its row says; 2 where there is nothing to ask."""
    simulate(RANKS)
    try:
        asked = load(arguments.implementation) or implementations.ALL + implementations.VARIANTS
    except CannotLoad as error:
        print(f"--implementation {error}", file=sys.stderr)
        return 2
    over_ranks = [x for x in asked if x.context_parallel and x.traceable]
    if not over_ranks:
        print("none of them is context parallel and can be traced by jax: nothing is exchanged", file=sys.stderr)
        return 2
    found = []
    for implementation in over_ranks:
        found.append(exchanged(implementation))
        print(as_line(found[-1]), flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "exchanged.json"
    document = {"rows": [asdict(row) for row in found], "environment": provenance()}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")
    return 0


def as_line(row: Exchanged) -> str:
    if row.problem:
        return f"{row.implementation:<24}not known: {row.problem}"
    assert row.depth
    assert row.elements
    grows = ", MORE WHERE THE SEQUENCE IS LONGER" if row.growing else ""
    return (
        f"{row.implementation:<24}{row.ranks} ranks, K = {row.key_size}, V = {row.value_size}: depth {row.depth[0]} "
        f"({row.depth[1]} with gradients), {row.elements[0]:g} elements ({row.elements[1]:g}){grows}"
    )


def exchanged(implementation: Implementation) -> Exchanged:
    about = (implementation.name, RANKS, K, V)
    try:
        (depths, elements), (_, of_longer) = (_of(implementation, tokens) for tokens in (TOKENS, 2 * TOKENS))
    except Exception as error:
        return Exchanged(*about, None, None, None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return Exchanged(*about, depths, elements, elements != of_longer)


def _of(implementation: Implementation, tokens: int) -> tuple[list[int], list[float]]:
    """Of the forward, and of the outputs with all gradients."""
    shape = Shape("", B, tokens, H, H, K, V, CHUNK_SIZE)
    compiled = [
        over_layout(implementation.call, over(RANKS), shape, backward=backward, vjp=implementation.vjp)
        for backward in (False, True)
    ]
    programs = [program.as_text() for program in compiled]
    received = [sum(each.received for each in collectives(program)) / (B * H) for program in programs]
    return [depth(program) for program in programs], received
