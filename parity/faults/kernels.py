"""Faults of a Pallas kernel: what its memory holds, the order of its grid, and which products are rounded."""

from functools import partial

from parity.faults.edits import Edit
from parity.faults.fault import LEAST, Fault

_scan = partial(Edit, "implementations.pallas.scan")
_composition = partial(Edit, "implementations.pallas.composition")
_ladder = partial(Edit, "implementations.ut_inversion.ladder")

FIRST_CHUNK = "    @pl.when(pl.program_id(1) == 0)\n    def _() -> None:\n        "
LOAD, LOAD_COTANGENT = FIRST_CHUNK + "state[...] = h0[...]", FIRST_CHUNK + "cotangent[...] = dfinal_state[...]"
FIRST_CELL = ("pl.program_id(1) == 0", "(pl.program_id(0) == 0) & (pl.program_id(1) == 0)")

WEAK = ("long_memory", "typical")
OUTPUTS = ("o", "final_state")


def _wrong(name: str, cause: str, quantity: str, edit: Edit, *right: str) -> Fault:
    return Fault(name, cause, "kernel", quantity, WEAK, (edit,), right=right)


FAULTS: tuple[Fault, ...] = (
    _wrong(
        "state_of_other_heads",
        "a tile of heads starts from the state that the tile before it has left in VMEM",
        "o",
        _scan(LOAD, LOAD.replace(*FIRST_CELL)),
    ),
    _wrong(
        "cotangent_of_other_heads",
        "in the backward a tile of heads starts from the cotangent that the tile before it has left in VMEM",
        "dh0",
        _scan(LOAD_COTANGENT, LOAD_COTANGENT.replace(*FIRST_CELL)),
        *OUTPUTS,
    ),
    _wrong(
        "final_state_of_the_chunk_before",
        "the kernel returns the state that enters the last chunk",
        "final_state",
        _scan("final_state[...] = state[...]", "final_state[...] = h"),
        "o",
    ),
    _wrong(
        "state_not_carried",
        "every chunk starts from the initial state",
        "o",
        _scan("    h = state[...]\n", "    h = h0[...]\n"),
    ),
    _wrong(
        "backward_walks_forward",
        "the backward walks the chunks from the first to the last",
        "dk",
        _scan("_of_chunk(x, tile, last=count - 1)", "_of_chunk(x, tile)"),
        *OUTPUTS,
    ),
    _wrong(
        "cotangent_not_loaded",
        "the backward starts from zero, and dfinal_state is lost",
        "dh0",
        _scan("cotangent[...] = dfinal_state[...]", "cotangent[...] = jnp.zeros_like(cotangent)"),
        *OUTPUTS,
    ),
    _wrong(
        "cotangent_before_the_first_chunk_lost",
        "dh0 is the cotangent of the state after the first chunk",
        "dh0",
        _scan("dh0[...] = cotangent[...]", "dh0[...] = dh"),
        *OUTPUTS,
        "dk",
        "dv",
    ),
    _wrong(
        "ladder_without_its_last_rung",
        "the inverse stops at blocks of half a chunk",
        "o",
        _ladder("(size - 1).bit_length()):", "(size - 1).bit_length() - 1):"),
    ),
    Fault(
        "ladder_in_one_bf16_pass",
        "the ladder multiplies in one pass of bf16, as a TPU does f32 where nothing is said",
        "kernel",
        "o",
        ("correlated_keys", "repeated_keys"),
        (
            _composition("products import bf16x3, full", "products import bf16x3, one_bf16_pass"),
            _composition("product=full", "product=one_bf16_pass"),
        ),
        dtype="f32",
        margin=LEAST,
    ),
)
