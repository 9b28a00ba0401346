"""What the work is divided into does not matter: chunks of any size, any number of ranks."""

from collections.abc import Iterator

from oracles.gated_delta_rule import QUANTITIES
from parity.properties.examples import Example
from parity.properties.judge import Finding, apart, finding
from parity.properties.results import ask
from parity.properties.sizes import MOST_RANKS
from parity.properties.subjects import Subject


def chunk_size(subject: Subject, example: Example) -> Iterator[Finding]:
    """Chunks of another size give the same results, and so does one chunk that is longer than the sequence."""
    x, sizes = example.arguments(subject.dtype), example.sizes
    run, other = (
        ask(subject, x, chunk_size=size, ranks=sizes.ranks) for size in (sizes.chunk_size, sizes.other_chunk_size)
    )
    for q in QUANTITIES:
        what = f"{q} in chunks of {sizes.chunk_size} and of {sizes.other_chunk_size}"
        yield finding(subject, what, (q,), apart((1.0, run[q]), (-1.0, other[q])))


def rank_count(subject: Subject, example: Example) -> Iterator[Finding]:
    """One rank, two, four and eight give the same results."""
    x = example.arguments(subject.dtype)
    ranks = [2**i for i in range(MOST_RANKS.bit_length())]
    one, *others = (ask(subject, x, chunk_size=example.sizes.chunk_size, ranks=n) for n in ranks)
    for n, other in zip(ranks[1:], others, strict=True):
        for q in QUANTITIES:
            yield finding(subject, f"{q} on 1 rank and on {n}", (q,), apart((1.0, one[q]), (-1.0, other[q])))
