"""Identities between results and gradients of one run: what each symmetry of the rule says to first order."""

from collections.abc import Iterator

import numpy as np

from parity.properties.examples import Arguments, Example
from parity.properties.judge import Finding, Pair, finding, pair, product
from parity.properties.results import Result, ask
from parity.properties.segments import first_tokens, last_tokens, of_state
from parity.properties.subjects import Subject
from parity.truth import per_token


def outputs_pair_as_inputs_do(subject: Subject, example: Example) -> Iterator[Finding]:
    """The outputs are linear in (v, h0): `<do, o> + <dht, ht> = <dv, v> + <dh0, h0>`, per row and head."""
    x, run = _run(subject, example)
    outputs = _summed(x["do"], run["o"]) + _summed_state(x["dfinal_state"], run["final_state"])
    inputs = _summed(x["v"], run["dv"]) + _summed_state(x["initial_state"], run["dh0"])
    yield finding(
        subject, "<do,o> + <dht,ht> - <dv,v> - <dh0,h0>", ("o", "final_state", "dv", "dh0"), (outputs - inputs).units
    )


def keys_balance_values(subject: Subject, example: Example) -> Iterator[Finding]:
    """(k, beta, v) -> (c k, beta / c^2, c v) changes no output: `<dk, k> - 2 beta dbeta + <dv, v> = 0`, per token."""
    x, run = _run(subject, example)
    values = _each_token(x["v"], run["dv"]) - _each_token(2 * x["beta"][..., None], run["dbeta"])
    balance = _each_token(x["k"], run["dk"]) + values.by_group(example.sizes.Hk)
    yield finding(subject, "<dk,k> - 2 beta dbeta + <dv,v>", ("dk", "dbeta", "dv"), balance.units)


def queries_pair_as_outputs_do(subject: Subject, example: Example) -> Iterator[Finding]:
    """o is linear in q: `<dq, q> = <do, o>`, per token, summed over the value heads of a key head."""
    x, run = _run(subject, example)
    outputs = _each_token(x["do"], run["o"]).by_group(example.sizes.Hk)
    yield finding(subject, "<dq,q> - <do,o>", ("dq", "o"), (_each_token(x["q"], run["dq"]) - outputs).units)


def gates_pair_with_states(subject: Subject, example: Example) -> Iterator[Finding]:
    """g_t scales the state that enters token t: `dg_t = <dh, h>`, of the run that starts there."""
    sizes = example.sizes
    x, run = _run(subject, example)
    keywords = {"chunk_size": sizes.chunk_size, "ranks": sizes.ranks}
    h = ask(subject, first_tokens(x, sizes.cut), **keywords)["final_state"]
    dh = ask(subject, last_tokens(x, sizes.cut) | {"initial_state": of_state(x, h)}, **keywords)["dh0"]
    gate = pair(np.ones_like(run["dg"].got), run["dg"], each_token=True).at(sizes.cut)
    found = gate - product(dh, h)
    yield finding(subject, f"dg - <dh,h> at token {sizes.cut}", ("dg", "dh0", "final_state"), found.units)


def _run(subject: Subject, example: Example) -> tuple[Arguments, dict[str, Result]]:
    x = example.arguments(subject.dtype)
    return x, ask(subject, x, chunk_size=example.sizes.chunk_size, ranks=example.sizes.ranks)


def _summed(weight: np.ndarray, x: Result) -> Pair:
    return pair(weight.astype(np.float64), x, each_token=False)


def _each_token(weight: np.ndarray, x: Result) -> Pair:
    return pair(weight.astype(np.float64), x, each_token=True)


def _summed_state(weight: np.ndarray, x: Result) -> Pair:
    return _summed(per_token("final_state", weight), x)
