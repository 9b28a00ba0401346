"""`--tpu` as a user meets it: on a machine without a TPU, and on machines that seem to have one.

What seems to be a TPU: the process that looks for chips finds them; the others have as many CPU devices as there are
chips, and take them for TPUs where they ask what is applicable.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from implementations.chunked import CHUNKED
from parity.diagnosis import controls
from parity.matrix import Case
from parity.problem import Problem
from parity.shapes import SHORT
from parity.tpu import applicable
from parity.tpu.applicable import NO_F64
from parity.tpu.chips import Devices
from parity.tpu.hardware import pytest_cmdline_main

ROOT = Path(__file__).parent.parent.parent
V5E, V6E = "TPU v5 lite", "TPU v6 lite"
PLATFORM = {V5E: "tpu-v5e", V6E: "tpu-v6e"}

SEEMS = """
import sys
from types import SimpleNamespace
import jax
import parity.devices
import parity.tpu.applicable
from parity.tpu.chips import Devices

if "parity.tpu.chips" in sys.orig_argv:
    of_all = dict(platform="tpu", device_kind={kind!r}, process_index=0)
    found = [SimpleNamespace(coords=(i % 2, i // 2, 0), **of_all) for i in range({chips})]
    jax.devices, jax.device_count = lambda: found, lambda: {chips}
else:
    simulate, update = parity.devices.simulate, jax.config.update
    parity.devices.simulate = lambda devices: simulate({chips})
    jax.config.update = lambda name, value: update(name, "cpu" if name == "jax_platforms" else value)
    parity.tpu.applicable.here = lambda: Devices("tpu", {kind!r}, len(jax.devices()))
"""

KERNELS = """
import os, subprocess, sys
from pathlib import Path
from implementations import Implementation
from implementations.chunked import CHUNKED, chunked

LOG = Path(__file__).with_name("processes")
name = os.environ.get("PYTEST_XDIST_WORKER", "controller")
chip = subprocess.run(["printenv", "TPU_VISIBLE_CHIPS"], capture_output=True, text=True).stdout.strip()
with LOG.open("a") as log:
    print(name, chip or "all", file=log)

def ends_its_process(*inputs, scale, chunk_size):
    os._exit(1)

def raises(*inputs, scale, chunk_size):
    raise RuntimeError("the kernel is not here")

RAISES = Implementation("raises", raises, arithmetic={"f32": "f32"})
MINE = Implementation("mine", CHUNKED.call, arithmetic={"f32": "f32"})
BOTH = (Implementation("ends", ends_its_process, arithmetic={"f32": "f32"}), MINE)
"""


def run(*arguments, python_path=(), **environment):
    outside = {x: value for x, value in os.environ.items() if not x.startswith(("PYTEST_", "GITHUB_", "CI", "TPU_"))}
    outside |= {"PYTHONPATH": os.pathsep.join([*map(str, python_path), str(ROOT)])} | environment
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tpu", *arguments]
    return subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def seeming(tmp_path):
    def run_there(kind, chips, *arguments, **environment):
        (tmp_path / "sitecustomize.py").write_text(SEEMS.format(kind=kind, chips=chips))
        return run(*arguments, f"--parity-report={tmp_path}", python_path=[tmp_path], **environment)

    return run_there


@pytest.fixture
def kernels(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


def processes(kernels):
    """Which chips each process of a run had when it loaded the kernels, by xdist's name of it, in order."""
    return [tuple(line.split()) for line in kernels.with_name("processes").read_text().splitlines()]


# Without a TPU


@pytest.mark.parametrize("arguments", [("-n0",), ("-n", "4")])
def test_a_machine_without_a_tpu_is_told_so_in_one_sentence(arguments):
    done = run(*arguments, TPU_LIBRARY_PATH="/there/is/no.so", JAX_PLATFORMS="cpu")
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("pytest --tpu: there is no TPU here that jax can use: ")
    assert done.stderr.endswith("; `tox -e cpu` runs the gate on any machine\n")


@pytest.mark.parametrize("other", ["faults", "tpu_interpret"])
def test_what_is_no_run_of_the_gate_on_hardware_is_refused(other):
    config = SimpleNamespace(getoption=lambda name: name in ("tpu", other))
    with pytest.raises(pytest.UsageError, match=f"leave out --{other.replace('_', '-')}$"):
        pytest_cmdline_main(config)


# Collected, as on chips

EXCHANGES = ("test_affine_composition.py", "test_causal_conv.py", "test_training.py")


def takes(nodeid):
    """The devices that a test of these modules takes, read from its id or from what it says it shows."""
    name, _, parameters = nodeid.partition("[")
    if name == "test_other_kernels" or "gradient_that_is_missing" in name or "zigzag" in parameters:
        return 4
    if "without_any_exchange" in name or "shuffled2" in parameters:
        return 2
    ranks = re.search(r"-(\d)ranks|_on_(\d)\]|-(\d)\]", "[" + parameters)
    return int(next(filter(None, ranks.groups()))) if ranks else 1


@pytest.mark.parametrize(("kind", "chips"), [(kind, chips) for kind in (V5E, V6E) for chips in (1, 4, 8)])
def test_all_is_collected_and_what_cannot_be_asked_there_is_listed_with_its_reason(seeming, kind, chips):
    done = seeming(kind, chips, "--collect-only", "-v", *(f"parity/{name}" for name in EXCHANGES))
    assert done.returncode == 0, done.stdout + done.stderr
    plural = "s" * (chips > 1)
    assert f"on TPUs: {kind}, platform {PLATFORM[kind]}, {chips} chip{plural}, 1 worker with all of them" in done.stdout
    collected = re.findall(r"<Function (\S+)>", done.stdout)
    listed = {x: takes(x) for x in collected}
    assert set(listed.values()) == {1, 2, 4, 8}

    found = dict(re.findall(r"not applicable, \d+ tests: (.*)\n((?:    \S+\n)+)", done.stdout))
    not_applicable = {why: {x.partition("::")[2] for x in ids.split()} for why, ids in found.items()}
    of_f64 = {x for x in collected if re.search(r"[\[_-]f64[-_]", x)}
    assert not_applicable.pop(NO_F64) == of_f64
    more = {n: {x for x, takes in listed.items() if takes == n} - of_f64 for n in (2, 4, 8) if n > chips}
    assert not_applicable == {
        f"{n} devices are needed, and one process has {chips} here ({kind})": ids for n, ids in more.items()
    }
    asked = len(collected) - len(of_f64) - sum(map(len, more.values()))
    assert f"{asked} of {len(collected)} tests can be asked here" in done.stdout


@pytest.mark.parametrize(("chips", "asked", "workers"), [(1, 4, 1), (4, 9, 4), (8, 3, 3), (8, 1, 1)])
def test_there_are_no_more_workers_than_chips(seeming, chips, asked, workers):
    select = ["--collect-only", "parity/test_affine_composition.py", "-k", "test_exchange"]
    done = seeming(V6E, chips, "-n", str(asked), *select)
    several = f", {workers} workers with a chip each, where what needs several is not applicable"
    assert (several if workers > 1 else ", 1 worker with all of them") in done.stdout
    assert (f"({asked} were asked for: a chip belongs to one process)" in done.stdout) == (asked > chips)
    assert ("8 devices are needed" in done.stdout) == (chips < 8 or workers > 1)


def test_the_suites_tests_of_itself_are_left_out(seeming):
    done = seeming(V5E, 4, "--collect-only", "parity/test_causal_conv.py", "parity/test_unit.py")
    assert {re.sub(r"\[.*", "", x) for x in re.findall(r"<Function (\S+)>", done.stdout)} == {
        "test_on_one_device",
        "test_over_ranks",
        "test_other_kernels",
        "test_load_balanced_tokens",
        "test_packed_documents",
    }


# Run, as on chips


def test_one_worker_has_all_chips_and_the_report_names_the_platform(seeming, kernels, tmp_path):
    gate = "ragged-shard and typical and (chunked- or two_phase-) and not bf16"
    select = ["parity/test_forward.py", "parity/test_affine_composition.py", "-k", f"({gate}) or ring-f32"]
    done = seeming(V5E, 4, *select)
    assert done.returncode == 0, done.stdout
    assert "1 worker " in done.stdout
    document = json.loads((tmp_path / "accuracy.json").read_text())
    about = {name: document["environment"][name] for name in ("platform", "device_kind", "device_count")}
    assert about == {"platform": "tpu-v5e", "device_kind": V5E, "device_count": 4}
    assert "on tpu-v5e" in (tmp_path / "accuracy.md").read_text().splitlines()[0]
    judged = Counter()
    for row in document["rows"]:
        judged[row["dtype"]] += row["judged"]
    assert judged["f64"] == 0 < judged["f32"]
    assert f"chunked: {NO_F64}" in done.stdout
    assert "two_phase: 8 devices are needed, and one process has 4 here (TPU v5 lite)" in done.stdout
    assert "not applicable, 1 tests: 8 devices are needed" in done.stdout


def test_a_process_of_its_own_has_all_chips(seeming, kernels):
    done = seeming(
        V5E, 1, "-n0", "--implementation", f"{kernels}:MINE", "-k", "typical-short", "parity/test_forward.py"
    )
    assert done.returncode == 0, done.stdout
    assert "1 chip, this process with all of them" in done.stdout
    assert processes(kernels) == [("controller", "all")]


def test_each_of_several_workers_has_a_chip_and_one_in_place_of_another_has_its_chip(seeming, kernels):
    """Of two implementations one ends its process, whose place another takes."""
    select = ["parity/test_backward.py", "-k", "f32 and typical and (short or ragged) and dk"]
    done = seeming(V5E, 2, "-n2", "--implementation", f"{kernels}:BOTH", *select)
    assert done.returncode == 1
    controller, *workers = processes(kernels)
    assert controller == ("controller", "all")
    chips = dict(workers)
    assert {chips["gw0"], chips["gw1"]} == {"0", "1"}
    replaced = re.findall(r"replacing crashed worker (gw\d+)", done.stdout)
    assert len(replaced) == 2
    assert {f"gw{2 + i}": chips[gone] for i, gone in enumerate(replaced)}.items() <= chips.items()
    rows = {row["implementation"]: row for row in json.loads((kernels.parent / "accuracy.json").read_text())["rows"]}
    assert (rows["mine"]["judged"], rows["mine"]["failed"]) == (2, 0)


def test_the_chips_of_a_process_that_was_lent_some_are_those(seeming, kernels):
    select = ["-n2", "--implementation", f"{kernels}:MINE", "-k", "typical-short", "parity/test_forward.py"]
    assert seeming(V5E, 2, *select, TPU_VISIBLE_CHIPS="6,7").returncode == 0
    assert {chip for name, chip in processes(kernels) if name != "controller"} == {"6", "7"}


def test_a_red_test_says_how_to_run_it_again_on_tpus(seeming, kernels):
    select = ["parity/test_forward.py", "-n0", "--implementation", f"{kernels}:RAISES", "-k", "typical-short"]
    done = seeming(V5E, 4, *select)
    assert done.returncode == 1
    assert re.search(r'python -m pytest -n0 "\S+" --implementation "\S+" --tpu\n', done.stdout)


def test_what_a_failure_is_compared_with_is_not_asked_where_it_cannot_be(monkeypatch):
    monkeypatch.setattr(applicable, "here", lambda: Devices("tpu", V5E, 4))
    in_f64 = Case(CHUNKED, Problem("typical", SHORT, "f64"), 1)
    assert controls._judged(in_f64) == f"not applicable: {NO_F64}"
    assert controls._judged(Case(CHUNKED, Problem("typical", SHORT, "f32"), 1)).startswith("right")
