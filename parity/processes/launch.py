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
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from parity.processes.join import joined
from parity.processes.worker import answer_file, cases_of
from parity.run import Answer
from parity.tolerances.provenance import ROOT

PATIENCE = 45.0  # seconds in which a process must say something: a case compiles and runs in a few
_LINES = 25  # of what a process has written last


class ProcessFailed(Exception):
    """A process has died, or hangs; the message says which, doing what, and what it has written last."""


@dataclass
class Process:
    """One of them, where it leaves its progress and its answers, and when its progress was last seen to grow."""

    index: int
    popen: subprocess.Popen[bytes]
    progress: Path
    errors: Path
    answers: Sequence[Path]
    heard: float
    size: int = 0
    group_has_ended: bool = False

    @property
    def status(self) -> int | None:
        """As last heard."""
        return self.popen.returncode

    @property
    def has_died(self) -> bool:
        """Whatever its status: code under test may end a process well."""
        return self.status is not None and (self.status != 0 or not self.has_answered)

    @property
    def has_answered(self) -> bool:
        return all(file.exists() for file in self.answers)

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
        if self.popen.poll() is not None:
            _end(self)


def answers(spec: str, *, processes: int = 2, devices: int = 4, patience: float = PATIENCE) -> list[Answer]:
    """The answers to the cases that `package.module:NAME` holds, of `processes` with `devices` CPU devices each: every
    rank's piece from the processes that hold it.

    Raises ProcessFailed where one ends before it has answered, or says nothing for `patience` seconds; no process is
    left then either, nor any that they have started.
    """
    cases = range(len(cases_of(spec)))
    with tempfile.TemporaryDirectory() as name, ExitStack() as ends:
        directory, port = Path(name), _free_port()
        running: list[Process] = []
        for index in range(processes):
            files = [answer_file(directory, number, index) for number in cases]
            running.append(_start(index, directory, spec, (port, index, processes, devices), files))
            ends.callback(_end, running[-1])
        _wait(running, patience)
        return [joined([_left_in(process.answers[number]) for process in running]) for number in cases]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port: int = free.getsockname()[1]
        return port


def _start(index: int, directory: Path, spec: str, numbers: Sequence[int], answers: Sequence[Path]) -> Process:
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
    return Process(index, popen, directory / f"progress-{index}", errors, answers, time.monotonic())


def _wait(running: Sequence[Process], patience: float) -> None:
    """Until all have answered and ended. Raises ProcessFailed."""
    while any(process.status is None for process in running):
        time.sleep(0.1)
        for process in running:
            process.listen()
        dead = [process for process in running if process.has_died]
        if dead:
            raise _failed(running, "\n".join(_fate(process, len(running)) for process in dead))
        silent = [x for x in running if x.status is None and time.monotonic() - x.heard > patience]
        if silent:
            for process in silent:
                process.popen.send_signal(signal.SIGUSR1)  # it writes the stacks of its threads
            time.sleep(1.0)
            which = " and ".join(str(process.index) for process in silent)
            raise _failed(running, f"process {which} of {len(running)}: nothing said for {patience:g} seconds")


def _fate(process: Process, processes: int) -> str:
    early = "" if process.has_answered or process.status else " before it had answered"
    return f"process {process.index} of {processes} ended with exit status {process.status}{early}"


def _failed(running: Sequence[Process], what: str) -> ProcessFailed:
    each = [f"process {x.index} {x.doing}; what it has written last:\n{x.last_words}" for x in running]
    return ProcessFailed("\n".join([what, *each]))


def _end(process: Process) -> None:
    """It, and whatever it has started, which does not end with it."""
    if process.group_has_ended:
        return  # by now the number may be another's
    with suppress(ProcessLookupError):
        os.killpg(process.popen.pid, signal.SIGKILL)
    process.popen.wait()
    if process.popen.stdin is not None:
        process.popen.stdin.close()
    process.group_has_ended = True


def _left_in(file: Path) -> Answer:
    answer: Answer = pickle.loads(file.read_bytes())
    return answer
