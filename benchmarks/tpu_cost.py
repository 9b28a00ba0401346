"""What programs for TPUs cost, without a TPU: `python benchmarks/tpu_cost.py`, which takes long, with libtpu.

Prints the tables of docs/tpu.md: what a chip holds of a million tokens, FLOPs and bytes of every scheme, and what a
kernel takes of VMEM. Nothing is run: programs are compiled by libtpu, and counted in what jax traced
(`parity/compiled/traced.py`).
`python benchmarks/tpu_cost.py work kernels` prints these tables only.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax

from implementations import ALL, VARIANTS
from implementations.context_parallel.least_memory import least_memory
from implementations.context_parallel.reverse_fold import reverse_fold
from implementations.context_parallel.two_phase import two_phase
from implementations.contract import Implementation
from parity.compiled.programs import abstract, outputs_and_gradients, temporaries
from parity.compiled.traced import Work, work
from parity.devices import simulate
from parity.layouts import over
from parity.meshes import keywords
from parity.tpu.ahead import compile_call, compile_for, vmem
from parity.tpu.kernels import KERNELS
from parity.tpu.long import CHIP, FORMS, LONG, LONGEST, Run, compile_long
from parity.tpu.slices import CHIPS, devices

UPSTREAM = {LONG: 12.76, LONGEST: 6.38}  # GB of temporaries a chip, of the form that landed upstream
A_RANK = LONG.tokens // LONG.ranks

Row = tuple[Any, ...]


def main() -> None:
    simulate(8)
    tables = {"memory": memory, "segments": segments, "ranks": ranks, "work": of_work, "kernels": of_kernels}
    for name in sys.argv[1:] or tables:
        tables[name]()


def memory() -> None:
    def rows() -> Iterator[Row]:
        yield "as it landed upstream (libtpu 0.0.52)", f"{UPSTREAM[LONG]}", "29", f"{UPSTREAM[LONGEST]}", "29"
        for form in FORMS:
            found = [held(functools.partial(compile_long, form, run)) for run in (LONG, LONGEST)]
            yield form, *(cell for program, seconds in found for cell in (gb(temporaries(program)), f"{seconds:.0f}"))

    table(
        "GB of temporaries a chip (v5p), forward and all gradients",
        "form|262,144 over 8|compiled in s|1,048,576 over 64|compiled in s",
        rows(),
    )


def segments() -> None:
    def rows() -> Iterator[Row]:
        for chunks in (4, 8, 16, 32):
            call = functools.partial(least_memory, chunks_a_segment=chunks)
            program = compile_call(
                Implementation("least_memory", call, context_parallel=True), CHIP, LONG.shape, ranks=LONG.ranks
            )
            states = LONG.tokens // LONG.ranks // 64 // chunks
            yield chunks, gb(states * 32 * 4 * 128 * 128), gb(temporaries(program))

    table("least_memory, 262,144 tokens over 8", "chunks a segment|GB of states kept|GB of temporaries", rows())


def ranks() -> None:
    def rows() -> Iterator[Row]:
        for form in ("fold", "least_memory"):
            found = [temporaries(compile_long(form, Run(A_RANK * count, count))) for count in (2, 4, 8)]
            yield form, *map(gb, found)

    table(f"GB of temporaries a chip, {A_RANK:,} tokens on each", "form|2 chips|4|8", rows())


def of_work() -> None:
    """Of one chip; on one device what one rank holds."""
    schemes = {x.name: x for x in (*ALL, *VARIANTS) if x.name != "sequential" and x.name != "sequential_over_ranks"}
    schemes["reverse_fold"] = Implementation(
        "reverse_fold", functools.partial(two_phase, map_of_rank=reverse_fold), context_parallel=True
    )
    schemes["least_memory"] = Implementation("least_memory", least_memory, context_parallel=True)

    def rows() -> Iterator[Row]:
        core = [of_a_chip(schemes["chunked"], backward) for backward in (False, True)]
        for name, implementation in schemes.items():
            found = core if name == "chunked" else [of_a_chip(implementation, backward) for backward in (False, True)]
            yield name, *(cell for one, of_core in zip(found, core, strict=True) for cell in cells(one, of_core))

    columns = "TFLOP|over chunked|GB|over chunked"
    table(f"Work of a chip, {A_RANK:,} tokens of 32 heads on each of 8", f"forward|{columns}|both: {columns}", rows())


def of_a_chip(implementation: Implementation, backward: bool) -> Work:
    count = LONG.ranks if implementation.context_parallel else 1
    arrays = abstract(Run(A_RANK * count, count).shape, "bf16", over(count))
    told: dict[str, Any] = {"scale": None, "chunk_size": 64}
    call = functools.partial(implementation.call, **told, **(keywords(over(count)) if count > 1 else {}))
    if backward:
        return work(outputs_and_gradients(call), arrays[:6], arrays[6:])
    return work(call, *arrays[:6])


def cells(found: Work, core: Work) -> Iterator[str]:
    for one, other, scale in ((found.flops, core.flops, 1e12), (found.bytes, core.bytes, 1e9)):
        yield f"{one / scale:.2f}"
        yield f"{100 * (one / other - 1):+.1f} %"


def of_kernels() -> None:
    """32 heads, four chunks of each."""

    def rows() -> Iterator[Row]:
        for kernel in KERNELS:
            for chunk in (64, 128):
                done = work(kernel.call, *kernel.arguments(32, chunk, jax.devices("cpu")[0]))
                taken = []
                for chip in CHIPS:
                    arguments = kernel.arguments(32, chunk, devices(chip, 1)[0])
                    taken.append(held(functools.partial(compile_for, chip, kernel.name, kernel.call, *arguments)))
                names = ("inversion",) if "inversion" in kernel.name else ("scan_forward", "scan_backward")
                text = taken[0][0].as_text()
                yield (
                    kernel.name,
                    chunk,
                    f"{done.flops / 1e9:.2f}",
                    f"{done.bytes / 1e6:.1f}",
                    " + ".join(f"{vmem(text, name) / 2**20:.1f}" for name in names),
                    *(f"{seconds:.1f}" for _, seconds in taken),
                )

    columns = "kernel, forward and backward|C|GFLOP|MB|MiB of VMEM (v5e)"
    table("Kernels, 32 heads, four chunks of each", "|".join((columns, *(f"{chip}, s" for chip in CHIPS))), rows())


def held(compile_it: Callable[[], Any]) -> tuple[Any, float]:
    """The program, and how long it took to compile."""
    start = time.perf_counter()
    program = compile_it()
    return program, time.perf_counter() - start


def gb(count: float) -> str:
    return f"{count / 1e9:.2f}"


def table(title: str, columns: str, rows: Iterable[Row]) -> None:
    """As Markdown, row by row."""
    print(f"\n**{title}**\n\n| {' | '.join(columns.split('|'))} |")
    print("|---" * len(columns.split("|")) + "|")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |", flush=True)


if __name__ == "__main__":
    main()
