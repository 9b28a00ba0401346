"""The causal convolution and its gradients, on one device and over ranks, against the oracle and its kappa."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from implementations.causal_conv import causal_conv
from implementations.context_parallel.gspmd_conv import gspmd_conv
from implementations.context_parallel.halo_conv import halo_conv
from oracles.causal_conv import ball
from oracles.gated_delta_rule.ball import distance
from parity.convolution import NAMES, QUANTITIES, VALUES, Convolution, W, arguments, blocks, measured, truth
from parity.faults.edits import Edit, edited
from parity.faults.fault import STRUCTURAL
from parity.faults.parts import Seen
from parity.layouts import OF_PIECES, ZIGZAG, Layout
from parity.packing import PACKINGS
from parity.precision import SMALLEST_NORMAL
from parity.tolerances.limits import limits
from parity.truth import CERTIFIED_SHARE
from parity.unit import in_units

OVER_RANKS = {"halo_conv": halo_conv, "gspmd_conv": gspmd_conv}
DTYPES = ("f64", "f32", "bf16")


def _limit(dtype: str) -> float:
    return limits().base[dtype].units


def _check(found: dict[tuple[str, int], float], dtype: str) -> None:
    (block, rank), worst = max(found.items(), key=lambda item: item[1])
    assert worst <= _limit(dtype), f"{block} of rank {rank} is off by {worst:.3g} units"


# Ids are as those of the gate, so that what one program serves runs in one worker.
each_value = pytest.mark.parametrize("values", VALUES)


def on_ranks(*numbers: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("ranks", numbers, ids=lambda ranks: f"{ranks}ranks")


@pytest.mark.gate
@pytest.mark.parametrize("ranks", [None], ids=["one_device"])
@each_value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("convolution", [causal_conv])
def test_on_one_device(convolution: Convolution, dtype: str, values: str, ranks: None) -> None:
    _check(measured(convolution, dtype, values, ranks=ranks), dtype)


@pytest.mark.gate
@on_ranks(1, 2, 4, 8)
@each_value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OVER_RANKS)
def test_over_ranks(name: str, dtype: str, values: str, ranks: int) -> None:
    _check(measured(OVER_RANKS[name], dtype, values, ranks=ranks), dtype)


@pytest.mark.gate
@pytest.mark.ranks(4)
@pytest.mark.parametrize("width", [1, 2, 5], ids=lambda width: f"width{width}")
@each_value
@pytest.mark.parametrize("dtype", ["f64"])
@pytest.mark.parametrize("name", OVER_RANKS)
def test_other_kernels(name: str, dtype: str, values: str, width: int) -> None:
    _check(measured(OVER_RANKS[name], dtype, values, ranks=4, width=width), dtype)


@pytest.mark.gate
@pytest.mark.ranks(4)
@each_value
@pytest.mark.parametrize("dtype", ["f64", "bf16"])
@pytest.mark.parametrize("layout", OF_PIECES, ids=lambda layout: layout.name)
def test_load_balanced_tokens(layout: Layout, dtype: str, values: str) -> None:
    _check(measured(halo_conv, dtype, values, ranks=layout), dtype)


@pytest.mark.gate
@each_value
@pytest.mark.parametrize("dtype", ["f64", "bf16"])
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(
    ("convolution", "ranks"),
    [(causal_conv, None), (halo_conv, 4), (halo_conv, 8), (halo_conv, ZIGZAG)],
    ids=["causal_conv-one_device", "halo_conv-4ranks", "halo_conv-8ranks", "halo_conv-zigzag4"],
)
def test_packed_documents(
    convolution: Convolution, ranks: Layout | int | None, packing: str, dtype: str, values: str
) -> None:
    _check(measured(convolution, dtype, values, ranks=ranks, packing=packing), dtype)


@each_value
def test_the_oracle_is_certified(values: str) -> None:
    """By the balls of one channel."""
    given = arguments(values, "f64", W)
    channel = [x[0] if name == "weight" else x[..., 0] for name, x in zip(NAMES, given, strict=True)]
    balls = (*ball.forward(*channel[:3], bits=256), *ball.adjoint(*channel, bits=256))
    for quantity, want, kappa, enclosure in zip(QUANTITIES, *truth(values, "f64", W), balls, strict=True):
        x, moves = (y[:1] if quantity == "dweight" else y[..., 0] for y in (want, kappa))
        error, x, moves = (y[:, :, None, None] for y in (distance(x, enclosure), x, moves))
        found = in_units(error, x, moves, u_c=2.0**-53, u_out=2.0**-53, floor=SMALLEST_NORMAL["f64"])
        assert found.max() <= CERTIFIED_SHARE["f64"] * _limit("f64")


# Mistakes that must be seen


def test_each_edge_is_a_block_of_its_own() -> None:
    x = np.arange(11.0)[None, :, None]
    assert {name: y.ravel().tolist() for name, y in blocks("dx", x, 3)} == {
        "dx first": [0, 1, 2],
        "dx between": [3, 4, 5, 6, 7],
        "dx last": [8, 9, 10],
    }


@dataclass(frozen=True)
class Mistake:
    """In `target`, on these ranks, these `edits` of its source make exactly these blocks `wrong`, on these ranks."""

    name: str
    target: str
    edits: tuple[tuple[str, str] | Edit, ...]
    wrong: dict[str, str]
    packing: str = ""
    over: Layout | int = 4


HALO, GSPMD = (f"implementations.context_parallel.{name}:{name}" for name in OVER_RANKS)
EVERY = "0123"
HOPS = "from_piece_before(tail.astype(x.dtype), axes, order)"
STEPS = partial(
    Edit,
    "implementations.context_parallel.pieces",
    "(lies[piece], lies[piece + 1]) for piece in range(len(order) - 1)",
)
BEFORE = "jnp.where(piece == 0, state, sent.astype(accumulate))"
FINAL, OF_THE_LAST = "jax.lax.psum(of_the_last, axes)", "jnp.where(piece == len(order) - 1, kept, 0)"
LATER, EARLIER = {"y first": "123"}, {"dx last": "012"}  # who is sent a halo, and who sends one
MISTAKES = [
    Mistake("no_halo", HALO, ((HOPS, "jnp.zeros_like(tail)"),), LATER | EARLIER | {"dweight": EVERY}),
    Mistake(
        "halo_of_the_rank_before_that",
        HALO,
        (STEPS("(lies[piece], lies[piece + 2]) for piece in range(len(order) - 2)"),),
        LATER | EARLIER | {"dweight": EVERY},
    ),
    Mistake(
        "halo_wraps_around",
        HALO,
        (
            STEPS("(lies[piece], lies[(piece + 1) % len(order)]) for piece in range(len(order))"),
            (BEFORE, "sent.astype(accumulate)"),
        ),
        {"y first": "0", "dx last": "3", "dweight": EVERY, "dinitial_state": EVERY},
    ),
    Mistake(
        "halo_one_token_short",
        HALO,
        (("sent.astype(accumulate)", "sent.astype(accumulate).at[:, 0].set(0)"),),
        LATER | EARLIER | {"dweight": EVERY},
    ),
    Mistake(
        "halo_in_reverse",
        HALO,
        (("sent.astype(accumulate)", "sent.astype(accumulate)[:, ::-1]"),),
        LATER | EARLIER | {"dweight": EVERY},
    ),
    Mistake(
        "halo_of_first_tokens",
        HALO,
        (("tail = tokens[:, tokens.shape[1] - halo :]", "tail = tokens[:, :halo]"),),
        LATER | {"final_state": EVERY, "dx first": EVERY, "dx last": EVERY, "dweight": EVERY},
    ),
    Mistake(
        "initial_state_ignored",
        HALO,
        ((BEFORE, BEFORE.replace("state", "0")),),
        {"y first": "0", "dweight": EVERY, "dinitial_state": EVERY},
    ),
    Mistake(
        "initial_state_on_every_rank",
        HALO,
        ((BEFORE, BEFORE.replace("== 0", ">= 0")),),
        LATER | EARLIER | {"dweight": EVERY, "dinitial_state": EVERY},
    ),
    Mistake(
        "kernel_reversed",
        HALO,
        (("weight, document)", "weight[:, ::-1], document)"),),
        {f"{q} {block}": EVERY for q in ("y", "dx") for block in ("first", "between", "last")}
        | {"dweight": EVERY, "dinitial_state": EVERY},
    ),
    Mistake(
        "final_state_of_the_own_rank",
        HALO,
        ((FINAL, "tail"), ("out_specs=(of_tokens, of_all),", "out_specs=(of_tokens, of_all), check_vma=False,")),
        {"final_state": "012", "dx last": EVERY},
    ),
    Mistake(
        "final_state_of_the_first_rank",
        HALO,
        ((OF_THE_LAST, OF_THE_LAST.replace("len(order) - 1", "0")),),
        {"final_state": EVERY, "dx last": "03"},
    ),
    Mistake(
        "dweight_of_one_rank",
        HALO,
        (("weight, document)", "jnp.where(piece[0] == 0, weight, jax.lax.stop_gradient(weight)), document)"),),
        {"dweight": EVERY},
    ),
    Mistake(
        "gradient_of_the_halo_stays",
        HALO,
        (("sent.astype(accumulate)", "jax.lax.stop_gradient(sent).astype(accumulate)"),),
        EARLIER,
    ),
    Mistake(
        "gradient_of_the_final_state_dropped",
        HALO,
        ((OF_THE_LAST, OF_THE_LAST.replace("kept", "jax.lax.stop_gradient(kept)")),),
        {"dx last": "3"},
    ),
    Mistake(
        "documents_leak",
        HALO,
        (
            (
                "taps(jnp.concatenate([before, tokens], axis=1), weight, document)",
                "taps(jnp.concatenate([before, tokens], axis=1), weight)",
            ),
        ),
        LATER | EARLIER | {"y between": EVERY, "dx first": "123", "dx between": EVERY, "dweight": EVERY},
        "at_edges",
    ),
    Mistake(
        "documents_leak_into_the_final_state",
        HALO,
        (("kept = of_last_document(tail, document)", "kept = tail"),),
        {"final_state": EVERY, "dx last": "3"},
        "long",
    ),
    Mistake(
        "start_at_a_rank_edge_missed",
        HALO,
        (
            (
                "jnp.where(number(len(segment_ids), axes, order)[:, None] == 0, segment_ids[:, :1], sent)",
                "jnp.repeat(segment_ids[:, :1], halo, axis=1)",
            ),
        ),
        LATER | EARLIER | {"dweight": EVERY},
        "at_edges",
    ),
    Mistake(
        "pieces_as_they_lie",
        HALO,
        (
            (
                "order = check_call(x, weight, initial_state, mesh, axes, segment_ids, piece_order)",
                "order = tuple(range(len(check_call(x, weight, initial_state, mesh, axes, segment_ids, piece_order))))",
            ),
        ),
        {"y first": "123567", "dx last": "0124567", "final_state": EVERY + "4567", "dweight": EVERY + "4567"},
        over=ZIGZAG,
    ),
    Mistake(
        "pieces_of_one_rank_exchange_nothing",
        HALO,
        (
            Edit(
                "implementations.context_parallel.pieces",
                "if (from_, to) == (source, target)]",
                "if (from_, to) == (source, target) and a != b]",
            ),
        ),
        {"y first": "4", "dx last": "3", "dweight": EVERY + "4567"},
        over=ZIGZAG,
    ),
    Mistake(
        "one_permute_overwrites_another",
        HALO,
        (
            Edit(
                "implementations.context_parallel.pieces",
                "received[target] + sent if target in received else sent",
                "sent",
            ),
        ),
        {"y first": "4", "dx last": "3", "dweight": EVERY + "4567"},
        over=ZIGZAG,
    ),
    Mistake(
        "padding_behind",
        GSPMD,
        (("padding=[(halo, 0)]", "padding=[(0, halo)]"),),
        {f"{q} {block}": EVERY for q in ("y", "dx") for block in ("first", "between", "last")} | {"dweight": EVERY},
    ),
    Mistake(
        "state_not_added",
        GSPMD,
        ((".at[:, jnp.arange(halo)].add(from_state)", ""),),
        {"y first": "0", "dweight": EVERY, "dinitial_state": EVERY},
    ),
    Mistake(
        "state_added_one_token_late",
        GSPMD,
        (("y = laid_out(y, axes).at[:, jnp.arange(halo)]", "y = laid_out(y, axes).at[:, 1 + jnp.arange(halo)]"),),
        {"y first": "0", "y between": "0", "dweight": EVERY, "dinitial_state": EVERY},
    ),
    Mistake(
        "final_state_one_token_early",
        GSPMD,
        (("jnp.arange(tokens - halo, tokens)", "jnp.arange(tokens - halo, tokens) - 1"),),
        {"final_state": EVERY, "dx between": "3", "dx last": "3"},
    ),
]


@pytest.mark.faults
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_seen_where_it_is_made_and_nowhere_else(
    mistake: Mistake, record_mistake: Callable[[Seen], None]
) -> None:
    module = mistake.target.partition(":")[0]
    edits = (edit if isinstance(edit, Edit) else Edit(module, *edit) for edit in mistake.edits)
    found = measured(edited(mistake.target, *edits), "f64", "typical", ranks=mistake.over, packing=mistake.packing)
    of_ranks = {f"{block} of rank {rank}": units for (block, rank), units in found.items()}
    record_mistake(Seen("convolution", mistake.name, "f64", _limit("f64"), of_ranks))
    wrong: dict[str, str] = {}
    for (block, rank), units in found.items():
        if units > _limit("f64"):
            assert units > STRUCTURAL * _limit("f64"), f"{block} of rank {rank}: {units:.3g} units"
            wrong[block] = wrong.get(block, "") + str(rank)
    assert wrong == mistake.wrong


def test_a_final_state_that_ranks_do_not_share_is_refused_by_its_type() -> None:
    """The same as `final_state_of_the_own_rank`, where the types of `shard_map` are checked, as they are."""
    planted = edited(HALO, Edit(HALO.partition(":")[0], FINAL, "tail"))
    with pytest.raises(ValueError, match="could not infer replication"):
        measured(planted, "f64", "typical", ranks=4)


def test_sums_in_bf16_are_seen() -> None:
    """A mistake of precision, in the gradient that sums over all tokens."""
    name = "implementations.causal_conv"
    planted = edited(
        f"{name}:causal_conv",
        Edit(name, "return accumulation_dtype(jnp.promote_types(x.dtype, weight.dtype))", "return x.dtype"),
    )
    assert measured(planted, "bf16", "typical", ranks=None)["dweight", 0] > _limit("bf16")
