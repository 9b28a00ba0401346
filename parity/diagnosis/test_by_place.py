"""Sentences about places: each where it is true, and none where it is not."""

import numpy as np
import pytest

from parity.diagnosis import by_place
from parity.shapes import ALIGNED, SHORT

OF_A_RANK = 82  # tokens, on four ranks: chunks of 16, the last of 2
TOKENS = 328
PER_TOKEN = ("dq", "dk", "dv", "dg", "dbeta")


def off(name, *where):
    """One quantity is off by one at `where`."""

    def change(values):
        values[name][where] += 1.0

    return change


def off_in(names, *where):
    def change(values):
        for name in names:
            values[name][where] += 1.0

    return change


def everything(values):
    for x in values.values():
        x += 1.0


def lines(verdict):
    return [line.strip() for line in by_place.read(verdict).splitlines()]


@pytest.fixture
def read(verdict_of):
    return lambda *change, **where: lines(verdict_of(*change, **where))


ALL = slice(None)


def tokens(start, stop=None):
    return (ALL, slice(start, stop))


def test_nothing_is_said_where_everything_is_wrong(read):
    assert read(everything, ranks=4) == []
    assert read(everything) == []


def test_nothing_is_said_where_nothing_is_wrong(read):
    assert read(lambda values: None) == []


# Ranks

HAND_OVER = "right on rank 0 and wrong from rank 1 on: the state is not handed over as it should be"
COTANGENT = (
    "right on rank 3, the last, and wrong on all before it: "
    "the cotangent of the state is not handed over as it should be"
)


def test_right_on_rank_0_and_wrong_from_rank_1_on(read):
    assert HAND_OVER in read(off("o", *tokens(OF_A_RANK)), ranks=4)
    assert HAND_OVER not in read(off("o", *tokens(OF_A_RANK, 3 * OF_A_RANK)), ranks=4)
    assert HAND_OVER not in read(off("o", *tokens(OF_A_RANK - 1)), ranks=4)
    assert HAND_OVER not in read(off("o", *tokens(2 * OF_A_RANK)), ranks=4)


def test_the_cotangent_goes_the_other_way(read):
    assert COTANGENT in read(off_in(PER_TOKEN, *tokens(0, 3 * OF_A_RANK)), ranks=4)
    assert COTANGENT not in read(off_in(PER_TOKEN, *tokens(0, 3 * OF_A_RANK + 1)), ranks=4)
    # what is wrong in the outputs is no matter of cotangents, and the other way round
    assert COTANGENT not in read(off_in(("o", *PER_TOKEN), *tokens(0, 3 * OF_A_RANK)), ranks=4)
    assert HAND_OVER not in read(off_in(PER_TOKEN, *tokens(OF_A_RANK)), ranks=4)


def test_what_was_read_is_said_where_more_than_that_is_wrong(read):
    """A gradient that is wrong on rank 0 has this sentence about the outputs in its message too."""
    where = tokens(OF_A_RANK)
    assert f"{HAND_OVER} (read from o)" in read(off_in(("o", *PER_TOKEN), *where), ranks=4)
    assert HAND_OVER in read(off("o", *where), ranks=4)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        (tokens(2 * OF_A_RANK, 3 * OF_A_RANK), "wrong on rank 2 only"),
        (tokens(0, OF_A_RANK), "wrong on rank 0 only"),
        (tokens(2 * OF_A_RANK), "right on ranks 0 and 1 and wrong from rank 2 on"),
        (tokens(0, 3 * OF_A_RANK), "wrong on ranks 0, 1 and 2 only"),
    ],
    ids=["one", "the first", "from the third on", "all but the last"],
)
def test_other_ranks_are_named(read, where, sentence):
    assert sentence in read(off("o", *where), ranks=4)


def test_one_device_has_no_ranks(read):
    assert not any("rank" in line for line in read(off("o", *tokens(100)), ranks=1))


# Chunks


def test_right_inside_the_first_chunk(read):
    after = "right in the first chunk and wrong after it: what goes from chunk to chunk"
    assert after in read(off("o", *tokens(16)))
    assert after not in read(off("o", *tokens(15)))
    first_of_each = np.flatnonzero(np.arange(TOKENS) % OF_A_RANK >= 16)
    of_each_rank = after.replace("chunk and", "chunk of each rank and")
    assert of_each_rank in read(off("o", ALL, first_of_each), ranks=4)
    assert of_each_rank not in read(off("o", *tokens(16)), ranks=4)
    assert "right in the first chunk of the sequence and wrong after it: what goes from chunk to chunk" in read(
        off("o", *tokens(16)), ranks=4
    )


def test_a_backward_is_read_from_the_end(read):
    before = "right in the last chunk and wrong before it: what goes from chunk to chunk"
    assert before in read(off_in(PER_TOKEN, *tokens(0, 320)))
    assert before not in read(off_in(PER_TOKEN, *tokens(0, 321)))


def test_wrong_in_a_ragged_tail_only(read):
    tail = "wrong in the last chunk only, which is ragged (8 of 16 tokens): what pads it, or where it ends"
    assert tail in read(off("o", *tokens(320)))
    assert tail not in read(off("o", *tokens(319)))
    of_each = np.flatnonzero(np.arange(TOKENS) % OF_A_RANK >= 80)
    assert tail.replace("chunk only", "chunk of each rank only").replace("8 of", "2 of") in read(
        off("o", ALL, of_each), ranks=4
    )
    assert not any("ragged" in line for line in read(off("o", *tokens(368)), shape=ALIGNED))


def test_one_chunk_has_no_edges(read):
    assert not any("chunk" in line for line in read(off("o", *tokens(4)), shape=SHORT))


# Heads and rows


@pytest.mark.parametrize(
    ("heads", "sentence"),
    [
        ([3], "wrong in value head 3 only"),
        ([3, 4, 5], "wrong in value heads 3, 4 and 5 only: those of key head 1"),
        ([1, 2, 4, 5], "wrong in value heads 1, 2, 4 and 5 only: all but the first of each key head"),
        ([1, 2, 3, 4, 5], "wrong in value heads 1, 2, 3, 4 and 5 only: all but head 0"),
        (
            [1, 4],
            "wrong in value heads 1 and 4 only: "
            "those that read another key head where key heads are tiled, not repeated",
        ),
        ([2, 3], "wrong in value heads 2 and 3 only"),
    ],
    ids=["one", "a group", "all but the first of a group", "all but head 0", "tiled", "others"],
)
def test_heads_are_named_with_what_they_share(read, heads, sentence):
    assert sentence in read(off("o", ALL, ALL, heads))


def test_heads_that_remember_are_told_from_others(read):
    """In `typical` the heads decay more the later they stand, and what dies within a token shows nothing."""
    found = read(off("o", ALL, ALL, [0, 1]), regime="typical")
    assert "wrong in value heads 0 and 1 only, those that decay least" in found


def test_key_heads_are_named_where_nothing_else_is_wrong(read):
    assert "wrong in key head 1 only" in read(off("dk", ALL, ALL, 1))
    mixed = read(lambda values: (off("dk", ALL, ALL, 0)(values), off("dv", ALL, ALL, 4)(values)))
    assert not any("head" in line for line in mixed)  # dv of head 4 is of key head 1


@pytest.mark.parametrize(
    ("row", "sentence"), [(1, "right in batch row 0 and wrong in every other"), (0, "wrong in batch row 0 only")]
)
def test_rows_are_named(read, row, sentence):
    assert sentence in read(off("o", row))
    assert sentence not in read(off("o", ALL))


# Quantities


def test_what_is_right_as_a_whole_is_said(read):
    assert read(off("dg"))[0] == "both outputs are right: the mistake is in the backward, in dg alone"
    assert read(off_in(("dk", "dg")))[0] == "both outputs are right: the mistake is in the backward, in dk and dg"
    assert read(off("final_state"))[0].startswith("o is right and the final state is not")
    assert read(off("o"))[0] == "the final state is right and o is not"
    assert read(off_in(("o", "final_state")))[0] == "right in dq, dk, dv, dg, dbeta and dh0"


def test_places_of_the_outputs_are_read_where_those_are_wrong(read):
    """The gradients of a wrong output are wrong in places of their own."""
    found = read(lambda values: (off("o", ALL, ALL, 2)(values), off_in(PER_TOKEN)(values)))
    assert "wrong in value head 2 only (read from o)" in found


def test_what_is_not_finite_is_wrong(read):
    def change(values):
        values["o"][:, OF_A_RANK:] = np.nan

    assert HAND_OVER in read(change, ranks=4)
