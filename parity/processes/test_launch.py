"""A process that dies, hangs or raises ends the run with its name, and no process is left."""

import os
import signal
import subprocess
import sys
import time

import pytest

from parity.processes import launch
from parity.processes.launch import PATIENCE, ProcessFailed, answers
from parity.processes.misbehaving import WRONG
from parity.verdict import judge_answer

pytestmark = pytest.mark.processes

_MODULE = "parity.processes.misbehaving"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that the test starts."""
    found: list[int] = []
    start = launch._start

    def recorded(*arguments):
        process = start(*arguments)
        found.append(process.popen.pid)
        return process

    monkeypatch.setattr(launch, "_start", recorded)
    return found


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("DIES", r"process 1 of 2 ended with exit status 7\n(.|\n)*process 1 runs dies-f64-typical-short"),
        (
            "SLEEPS",
            r"process (0 and 1|1) of 2: nothing said for 20 s(.|\n)*1 runs sleeps(.|\n)*in _sleeps",
        ),
        (
            "RAISES",
            r"process (0 and 1|0|1) of 2: nothing said for 20 s(.|\n)*1 leaves(.|\n)*ValueError: no such host",
        ),
    ],
    ids=["dies", "sleeps", "raises"],
)
def test_who_goes_wrong_is_named_and_none_is_left(what, says, started):
    with pytest.raises(ProcessFailed, match=says):
        answers(f"{_MODULE}:{what}", patience=20.0)
    assert len(started) == 2
    assert not any(map(is_alive, started))


def test_processes_end_with_the_one_that_started_them():
    program = (
        "from parity.processes import launch; start = launch._start\n"
        "def told(*x):\n    p = start(*x); print(p.popen.pid, flush=True); return p\n"
        f"launch._start = told; launch.answers('{_MODULE}:SLEEPS')"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        time.sleep(5)
        assert all(map(is_alive, pids))
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(map(is_alive, pids))


def test_what_is_wrong_on_several_processes_alone_is_red_there():
    (answer,) = answers(f"{_MODULE}:WRONG")
    verdict = judge_answer(WRONG[0], answer)
    wrong = {rank for (rank, quantity), finding in verdict.findings.items() if quantity == "o" and not finding.passes}
    assert wrong == {4, 5, 6, 7}


def test_a_hang_is_noticed_within_a_minute():
    assert PATIENCE + 10 <= 60  # what it takes to write stacks and to end the processes
