"""One of several processes: `python -m parity.processes.worker CASES DIRECTORY PORT INDEX PROCESSES DEVICES`.

It joins the others, runs every case, and leaves in DIRECTORY what its own devices hold. Started by `launch`, which
reads `progress-INDEX` to know that it is alive. It ends when its standard input does, with all that it has started:
none outlives who started it.
"""

import faulthandler
import importlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import jax

from parity.devices import simulate
from parity.matrix import Case
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
        answer = run(case.implementation, case.problem, case.over)
        for quantity, failure in answer.failures.items():  # it alone may have failed, and the others wait for it
            print(f"{quantity} of {case.name}: {failure}", file=sys.stderr, flush=True)
        _leave(answer, answer_file(Path(directory), number, index))
    print("leaves the others", file=progress)
    jax.distributed.shutdown()


def cases_of(spec: str) -> Sequence[Case]:
    """The sequence that `package.module:NAME` names."""
    module, _, name = spec.partition(":")
    cases: Sequence[Case] = getattr(importlib.import_module(module), name)
    return cases


def answer_file(directory: Path, number: int, index: int) -> Path:
    """Where process `index` leaves its answer to the case of that number."""
    return directory / f"{number}-{index}"


def _leave(answer: Answer, file: Path) -> None:
    """All of it at once: whoever dies here has not answered."""
    unfinished = file.with_name(f"{file.name}-unfinished")
    unfinished.write_bytes(pickle.dumps(answer))
    unfinished.replace(file)


def _end_with_standard_input() -> None:
    sys.stdin.read()
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
