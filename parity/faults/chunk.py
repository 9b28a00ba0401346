"""Faults inside a chunk: each is one line of `implementations.chunked`."""

from functools import partial

from parity.faults.edits import Edit
from parity.faults.fault import Fault

_chunked = partial(Edit, "implementations.chunked")
_chunk = partial(Fault, kind="chunk")

FAULTS = (
    _chunk(
        "update_with_u",
        "no delta term between chunks: the state takes up u, not u - w h",
        quantity="final_state",
        regimes=("long_memory",),
        edits=(_chunked('chunk.k_decayed, written), o', 'chunk.k_decayed, chunk.u), o'),),
    ),
)
