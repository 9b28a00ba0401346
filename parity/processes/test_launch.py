"""A process that dies, hangs or raises ends the run with its name, and none is left, nor any that it has started."""

import signal
import subprocess
import sys
import time
from collections.abc import Collection

import pytest

from parity.processes import launch
from parity.processes.launch import PATIENCE, ProcessFailed, answers
from parity.processes.misbehaving import WRONG
from parity.verdict import judge_answer

pytestmark = pytest.mark.processes

_MODULE = "parity.processes.misbehaving"


def members(leaders: Collection[int]) -> list[str]:
    """What lives of the groups of these processes: each starts its own, and what it starts belongs to it."""
    listed = subprocess.run(["ps", "-e", "-o", "pgid=,stat=,args="], stdout=subprocess.PIPE, text=True, check=True)
    each = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    return [" ".join(args) for group, stat, *args in each if int(group) in leaders and not stat.startswith("Z")]


def are_left(leaders: Collection[int], within: float) -> bool:
    """Whether any is, after so many seconds."""
    deadline = time.monotonic() + within
    while (left := members(leaders)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return bool(left)


def wait_for_all_to_start_another(leaders: Collection[int]) -> None:
    deadline = time.monotonic() + 30
    while not all("sleep 120" in members([leader]) for leader in leaders):
        assert time.monotonic() < deadline
        time.sleep(0.2)


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
            "LEAVES",
            r"process 1 of 2 ended with exit status 0 before it had answered\n(.|\n)*process 1 runs leaves-",
        ),
        (
            "ALL_LEAVE",
            r"process (0|1) of 2 ended with exit status 0 before it had answered\n(.|\n)* (0|1) runs all_leave-",
        ),
        (
            "SLEEPS",
            r"process (0 and 1|1) of 2: nothing said for 20 s(.|\n)*1 runs sleeps(.|\n)*in _sleeps",
        ),
        (
            "RAISES",
            r"process (0 and 1|0|1) of 2: nothing said for 20 s(.|\n)*1 leaves(.|\n)*ValueError: no such host",
        ),
    ],
    ids=["dies", "leaves", "all_leave", "sleeps", "raises"],
)
def test_who_goes_wrong_is_named_and_none_is_left(what, says, started):
    with pytest.raises(ProcessFailed, match=says):
        answers(f"{_MODULE}:{what}", patience=20.0)
    assert len(started) == 2
    assert not are_left(started, within=2)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_processes_end_with_the_one_that_started_them_and_all_that_they_have_started(how):
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from parity.processes import launch; start = launch._start\n"
        "def told(*x):\n    p = start(*x); print(p.popen.pid, flush=True); return p\n"
        f"launch._start = told; launch.answers('{_MODULE}:SLEEPS')"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        wait_for_all_to_start_another(pids)
        parent.send_signal(how)
    assert not are_left(pids, within=20)


def test_what_is_wrong_on_several_processes_alone_is_red_there_and_none_is_left(started):
    (answer,) = answers(f"{_MODULE}:WRONG")
    verdict = judge_answer(WRONG[0], answer)
    wrong = {rank for (rank, quantity), finding in verdict.findings.items() if quantity == "o" and not finding.passes}
    assert wrong == {4, 5, 6, 7}
    assert not are_left(started, within=2)


def test_a_hang_is_noticed_within_a_minute():
    assert PATIENCE + 10 <= 60  # what it takes to write stacks and to end the processes
