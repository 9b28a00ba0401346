"""Run cases on several processes, and end them all whatever happens."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from parity.processes.worker import cases_of
from parity.run import Answer
from parity.tolerances.provenance import ROOT

PATIENCE = 45.0  # seconds in which a process must say something: a case compiles and runs in a few
_LINES = 25  # of what a process has written last


class ProcessFailed(Exception):
    """A process has died, or hangs; the message says which, doing what, and what it has written last."""


@dataclass
class Process:
    """One of them, where it leaves its progress, and when that was last seen to grow."""

    index: int
    popen: subprocess.Popen[bytes]
    progress: Path
    errors: Path
    heard: float
    size: int = 0

    @property
    def doing(self) -> str:
        lines = self.progress.read_text(encoding="utf-8").splitlines() if self.progress.exists() else []
        return lines[-1] if lines else "starts"

    @property
    def last_words(self) -> str:
        lines = self.errors.read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES:]
        return "\n".join(f"    {line}" for line in lines) or "    (nothing)"

    def listen(self) -> None:
        size = self.progress.stat().st_size if self.progress.exists() else 0
        if size != self.size:
            self.size, self.heard = size, time.monotonic()


def answers(spec: str, *, processes: int = 2, devices: int = 4, patience: float = PATIENCE) -> list[Answer]:
    """The answers to the cases that `package.module:NAME` holds, of `processes` with `devices` CPU devices each: every
    rank's piece from the process that holds it.

    Raises ProcessFailed where one ends early, or says nothing for `patience` seconds; no process is left then either.
    """
    with tempfile.TemporaryDirectory() as directory:
        running: list[Process] = []
        try:
            with socket.socket() as free:
                free.bind(("localhost", 0))
                port = free.getsockname()[1]
            for index in range(processes):
                running.append(_start(index, Path(directory), spec, (port, index, processes, devices)))
            _wait(running, patience)
            return [_joined(Path(directory), number, processes) for number in range(len(cases_of(spec)))]
        finally:
            for process in running:
                _end(process)


def _start(index: int, directory: Path, spec: str, numbers: Sequence[int]) -> Process:
    errors = directory / f"errors-{index}"
    command = [sys.executable, "-m", "parity.processes.worker", spec, str(directory), *map(str, numbers)]
    with errors.open("wb") as file:
        popen = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    return Process(index, popen, directory / f"progress-{index}", errors, time.monotonic())


def _wait(running: Sequence[Process], patience: float) -> None:
    """Until all have ended well. Raises ProcessFailed."""
    while not all(process.popen.poll() == 0 for process in running):
        time.sleep(0.1)
        for process in running:
            process.listen()
            status = process.popen.poll()
            if status:
                raise _failed(running, f"process {process.index} of {len(running)} ended with exit status {status}")
        silent = [x for x in running if x.popen.poll() is None and time.monotonic() - x.heard > patience]
        if silent:
            for process in silent:
                process.popen.send_signal(signal.SIGUSR1)  # it writes the stacks of its threads
            time.sleep(1.0)
            which = " and ".join(str(process.index) for process in silent)
            raise _failed(running, f"process {which} of {len(running)}: nothing said for {patience:g} seconds")


def _failed(running: Sequence[Process], what: str) -> ProcessFailed:
    each = [f"process {x.index} {x.doing}; what it has written last:\n{x.last_words}" for x in running]
    return ProcessFailed("\n".join([what, *each]))


def _end(process: Process) -> None:
    """It, and whatever it has started."""
    pipe: IO[bytes] | None = process.popen.stdin
    if process.popen.poll() is None:
        os.killpg(process.popen.pid, signal.SIGKILL)
    process.popen.wait()
    if pipe is not None:
        pipe.close()


def _joined(directory: Path, number: int, processes: int) -> Answer:
    """One answer of those that the processes have left."""
    parts: list[Answer] = [pickle.loads((directory / f"{number}-{index}").read_bytes()) for index in range(processes)]

    def of(pieces: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:
        in_all = [quantity for quantity in pieces[0] if all(quantity in x for x in pieces)]
        return {quantity: list(map(_the_one, *(x[quantity] for x in pieces))) for quantity in in_all}

    failures = {quantity: text for part in parts for quantity, text in part.failures.items()}
    return Answer(of([part.pieces for part in parts]), failures, of([part.in_vjp for part in parts]))


def _the_one(*pieces: Any) -> Any:
    """Of a rank: from the process that holds it."""
    return next(piece for piece in pieces if piece is not None)
