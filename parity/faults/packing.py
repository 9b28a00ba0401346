"""Faults of packed documents: what one of them knows of another, and where it begins."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from implementations.contract import Implementation
from parity.faults.around import Wrap
from parity.faults.chunk import ATTENTION, K_DECAYED, S
from parity.faults.edits import Edit
from parity.faults.fault import Fault

Ids = Int[Array, "B T"]

_chunked = partial(Edit, "implementations.chunked")
_segments = partial(Edit, "implementations.segments")
_ranks = partial(Edit, "implementations.context_parallel.ranks")
_fault = partial(Fault, kind="packing", quantity="o", regimes=("long_memory", "typical"), packing="in_chunks")

_OF_ALL_TOKENS = "jnp.exp(segment_sums(g))"
_BEFORE = "jnp.where(jax.lax.axis_index(axes) == 0, segment_ids[:, :1], sent)"


def _given_ids(change: Callable[[Ids], Ids], *, backward_only: bool = False) -> Wrap:
    """Around any implementation: it is told other ids, in all or in its gradients alone."""

    def wrap(implementation: Implementation) -> Implementation:
        def told(function: Callable[..., Any], change: Callable[[Ids], Ids]) -> Callable[..., Any]:
            def call(*arguments: Array, segment_ids: Ids | None = None, **keywords: Any) -> Any:
                documents = {} if segment_ids is None else {"segment_ids": change(segment_ids)}
                return function(*arguments, **keywords, **documents)

            return call

        call = told(implementation.call, (lambda ids: ids) if backward_only else change)
        return replace(implementation, call=call, vjp=told(implementation.vjp or _vjp_of(implementation), change))

    return wrap


def _vjp_of(implementation: Implementation) -> Callable[..., Any]:
    def vjp(*arguments: Array, **keywords: Any) -> Any:
        _, pullback = jax.vjp(partial(implementation.call, **keywords), *arguments[:6])
        return pullback(tuple(arguments[6:]))

    return vjp


def _one_token_later(ids: Ids) -> Ids:
    return jnp.concatenate([ids[:, :1], ids[:, :-1]], axis=1)


def _one_token_earlier(ids: Ids) -> Ids:
    return jnp.concatenate([ids[:, 1:], ids[:, -1:]], axis=1)


_AROUND = (
    _fault("documents_leak", "documents of a row share one state", wrap=_given_ids(jnp.zeros_like)),
    _fault("document_starts_late", "a document starts one token late", wrap=_given_ids(_one_token_later)),
    _fault("document_starts_early", "a document starts one token early", wrap=_given_ids(_one_token_earlier)),
    _fault(
        "gradients_cross_documents",
        "documents are kept apart forward, and gradients are those of rows that are one document",
        wrap=_given_ids(jnp.zeros_like, backward_only=True),
        quantity="dk",
        right=("o", "final_state"),
    ),
)

_BETWEEN_RANKS = (
    _fault(
        "start_at_a_rank_edge_missed",
        "a document that starts with a rank's first token takes over the state of the rank before",
        edits=(_ranks(_BEFORE, "segment_ids[:, :1]"),),
        packing="at_edges",
        ranks=4,
        first_bad_rank=1,
    ),
    _fault(
        "every_rank_starts_a_document",
        "each rank takes its first token for the start of a document, and the state stays behind",
        edits=(_ranks(_BEFORE, _BEFORE.replace("sent", "segment_ids[:, :1] - 1")),),
        packing="long",
        ranks=4,
        first_bad_rank=1,
    ),
)

_IN_CHUNKS = (
    _fault(
        "entering_state_goes_on_through_a_start",
        "what follows a start in a chunk reads, corrects and hands on the state that entered it",
        edits=(_chunked("jnp.where(document == 0, G, -jnp.inf)", "G"),),
    ),
    _fault(
        "state_before_a_start_kept",
        "the state that enters a chunk leaves it decayed, whatever starts inside",
        edits=(_chunked("decay=jnp.exp(G[..., -1])", "decay=jnp.exp(jnp.sum(g, axis=-1))"),),
    ),
    _fault(
        "documents_attend_to_each_other",
        "the mask of documents is missing in Q K^T",
        edits=(_chunked(ATTENTION, ATTENTION.replace("* D", f"* {_OF_ALL_TOKENS}")),),
        right=("final_state",),
    ),
    _fault(
        "documents_correct_each_other",
        "the mask of documents is missing in S",
        edits=(_chunked(S, S.replace("* D", f"* {_OF_ALL_TOKENS}")),),
    ),
    _fault(
        "writes_before_a_start_kept",
        "what was written before a start reaches the end of the chunk",
        edits=(_chunked(K_DECAYED, K_DECAYED.replace("D[", f"{_OF_ALL_TOKENS}[")),),
    ),
    _fault(
        "documents_told_apart_by_an_id_that_comes_again",
        "two documents of one chunk with the same id are taken for one",
        edits=(
            _segments(
                "return jnp.cumsum(first.astype(jnp.int32), axis=-1)",
                "return jnp.cumsum(first.astype(jnp.int32), axis=-1) % 3",
            ),
        ),
    ),
)

FAULTS = (*_AROUND, *_BETWEEN_RANKS, *_IN_CHUNKS)
