"""One of several processes: `python -m parity.processes.worker CASES DIRECTORY PORT INDEX PROCESSES DEVICES`.

It joins the others, runs every case, and leaves in DIRECTORY what its own ranks hold. Started by `launch`, which reads
`progress-INDEX` to know that it is alive. It ends when its standard input does: it never outlives who started it.
"""

import faulthandler
import importlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from parity.devices import simulate
from parity.matrix import Case
from parity.meshes import mesh_of
from parity.run import Answer, run

JOIN_WITHIN = 30  # seconds


def main(arguments: Sequence[str]) -> None:
    spec, directory, *numbers = arguments
    port, index, processes, devices = map(int, numbers)
    faulthandler.register(signal.SIGUSR1)
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    progress = (Path(directory) / f"progress-{index}").open("a", encoding="utf-8", buffering=1)

    print("joins the others", file=progress)
    jax.config.update("jax_platforms", "cpu")
    simulate(devices)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", processes, index, initialization_timeout=JOIN_WITHIN)
    for number, case in enumerate(cases_of(spec)):
        print(f"runs {case.name}", file=progress)
        answer = _of_its_own_ranks(case, run(case.implementation, case.problem, case.over))
        for quantity, failure in answer.failures.items():  # it alone may have failed, and the others wait for it
            print(f"{quantity} of {case.name}: {failure}", file=sys.stderr, flush=True)
        (Path(directory) / f"{number}-{index}").write_bytes(pickle.dumps(answer))
    print("leaves the others", file=progress)
    jax.distributed.shutdown()


def cases_of(spec: str) -> Sequence[Case]:
    """The sequence that `package.module:NAME` names."""
    module, _, name = spec.partition(":")
    cases: Sequence[Case] = getattr(importlib.import_module(module), name)
    return cases


def _of_its_own_ranks(case: Case, answer: Answer) -> Answer:
    """Pieces of ranks on other processes are left empty: this one has them at second hand."""
    here = jax.process_index()
    devices = mesh_of(case.layout).devices.ravel()
    mine = {case.layout.holder(i) for i, device in enumerate(devices) if device.process_index == here}

    def of(pieces: dict[str, list[Any]]) -> dict[str, list[Any]]:
        ranks = range(case.ranks)
        return {q: [x[r] if case.layout.holder_of(r) in mine else None for r in ranks] for q, x in pieces.items()}

    return replace(answer, pieces=of(answer.pieces), in_vjp=of(answer.in_vjp))


def _end_with_standard_input() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
