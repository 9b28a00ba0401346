"""`python -m parity exchanged`: what each context-parallel implementation exchanges, counted in its program."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import jax

import implementations
from implementations.context_parallel.pieces import zigzag
from implementations.contract import Implementation
from parity.compiled.collectives import collectives
from parity.compiled.depth import depth
from parity.compiled.programs import over_layout
from parity.devices import simulate
from parity.layouts import Layout, over
from parity.load import CannotLoad, load
from parity.precision import DTYPES
from parity.shapes import Shape
from parity.tolerances.provenance import provenance

RANKS, PIECES = 8, 16
ZIGZAG = replace(over(RANKS), piece_order=zigzag(RANKS))
# No two sizes are the same, and none is T or a rank's or a piece's part of it.
B, H, K, V, CHUNK_SIZE = 1, 2, 12, 20, 8
TOKENS_OF_A_PIECE, ALIGNED_TOKENS_OF_A_PIECE = 7, 2 * CHUNK_SIZE


@dataclass(frozen=True)
class Exchanged:
    """Of the outputs, and where gradients are claimed of the outputs with all gradients: `depth`, how many collectives
    wait for one another; `elements` that arrive at ranks from others, all ranks together, for a row and head;
    `growing`, whether either is more where the sequence is twice as long. `problem`: why nothing is known.
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
        "collectives wait for one another, how many elements travel, and whether either grows with the sequence. "
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
    over_ranks = [x for x in asked if x.context_parallel]
    if not over_ranks:
        print("none of them is context parallel: nothing is exchanged", file=sys.stderr)
        return 2
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"--output {arguments.output}: no directory can be made there: {error}", file=sys.stderr)
        return 2
    found = []
    for implementation in over_ranks:
        for layout in (over(RANKS), ZIGZAG)[: 1 + implementation.load_balanced]:
            found.append(exchanged(implementation, layout))
            print(as_line(found[-1]), flush=True)
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
    depths = f"depth {row.depth[0]}" + "".join(f" ({x} with gradients)" for x in row.depth[1:])
    elements = f"{row.elements[0]:g} elements" + "".join(f" ({x:g})" for x in row.elements[1:])
    return (
        f"{row.implementation:<24}{row.ranks} ranks, K = {row.key_size}, V = {row.value_size}: "
        f"{depths}, {elements}{grows}"
    )


def exchanged(implementation: Implementation, layout: Layout) -> Exchanged:
    """Asked for what it claims: dtype, gradients, K != V, tokens that are no multiple of the chunk."""
    name = implementation.name + (", zigzag" if layout.piece_order else "")
    about = (name, RANKS, K, V if "unequal_head_sizes" in implementation.supports else K)
    if not implementation.traceable:
        return Exchanged(*about, None, None, None, "jax cannot trace it, so that there is no program to read")
    try:
        (depths, elements), longer = (_of(implementation, layout, times) for times in (1, 2))
    except Exception as error:
        return Exchanged(*about, None, None, None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return Exchanged(*about, depths, elements, (depths, elements) != longer)


def _of(implementation: Implementation, layout: Layout, times: int) -> tuple[list[int], list[float]]:
    """Of the outputs, and of the outputs with all gradients, for a sequence that is so many times as long."""
    supports = implementation.supports
    of_a_piece = TOKENS_OF_A_PIECE if "ragged" in supports else ALIGNED_TOKENS_OF_A_PIECE
    value_size = V if "unequal_head_sizes" in supports else K
    shape = Shape("", B, times * PIECES * of_a_piece, H, H, K, value_size, CHUNK_SIZE)
    claimed = [dtype for dtype in DTYPES if dtype in implementation.arithmetic]
    dtype = "f32" if "f32" in claimed else claimed[0]
    with jax.enable_x64(dtype == "f64"):
        programs = [
            over_layout(
                implementation.call, layout, shape, dtype=dtype, backward=backward, vjp=implementation.vjp
            ).as_text()
            for backward in (False, True)[: 1 + ("gradients" in supports)]
        ]
    received = [sum(each.received for each in collectives(program)) / (B * H) for program in programs]
    return [depth(program) for program in programs], received
