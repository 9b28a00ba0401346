"""What there is to compute on is found by another process, and what it has not found is said in one sentence."""

import importlib.util
import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest

from parity.tolerances.provenance import devices_of_others, provenance
from parity.tpu import chips
from parity.tpu.chips import Chips, Devices, NoChips, found


def device(number, kind="TPU v6 lite", platform="tpu", cores=1, host=0):
    place = number // cores
    coords = (place % 2, place // 2, 0)
    return SimpleNamespace(platform=platform, device_kind=kind, coords=coords, process_index=host)


@pytest.fixture
def asked_of(monkeypatch, capsys):
    """`found` where the process that looks sees these devices of jax, or what jax raises."""

    def asked(devices):
        def of_jax():
            if isinstance(devices, Exception):
                raise devices
            return devices

        def process(command, **keywords):
            with monkeypatch.context() as patch:
                patch.setattr(jax, "devices", of_jax)
                patch.setattr(jax, "device_count", lambda: len(devices))
                patch.setattr(jax.config, "update", lambda *_: None)
                status = chips._main()
            return SimpleNamespace(returncode=status, stdout="libtpu says\n" + capsys.readouterr().out, stderr="")

        monkeypatch.setattr(subprocess, "run", process)
        return found()

    return asked


def says(asked_of, devices):
    with pytest.raises(NoChips) as error:
        asked_of(devices)
    told = str(error.value)
    assert "\n" not in told
    start, end = "there is no TPU here that jax can use: ", "; `tox -e cpu` runs the gate on any machine"
    assert told.startswith(start)
    assert told.endswith(end)
    return told.removeprefix(start).removesuffix(end)


@pytest.mark.parametrize("count", [1, 4, 8])
def test_chips_are_counted(asked_of, count):
    there = asked_of([device(i) for i in range(count)])
    assert there.names == tuple(map(str, range(count)))
    assert there.about["platform"] == "tpu-v6e"
    assert there.of_a_process(1) == Devices("tpu", "TPU v6 lite", count)
    assert there.of_a_process(2) == Devices("tpu", "TPU v6 lite", 1)


def test_a_chip_may_be_two_devices(asked_of):
    there = asked_of([device(i, "TPU7x", cores=2) for i in range(8)])
    assert there.names == ("0", "1", "2", "3")
    assert there.about["device_count"] == 8
    assert there.of_a_process(4).count == 2


def test_chips_that_were_lent_keep_their_names(asked_of, monkeypatch):
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "6,7")
    assert asked_of([device(i) for i in range(2)]).names == ("6", "7")


def test_what_has_no_ledger_has_a_gate(asked_of):
    assert asked_of([device(0, "TPU v4")]).about["platform"] == "not recognised"


def test_what_jax_says_is_passed_on(asked_of, monkeypatch):
    error = RuntimeError(
        "Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid 12.\n"
        "Not attempting to load libtpu.so. (set JAX_PLATFORMS='' to automatically choose an available backend)"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace())
    wanted = "ABORTED: The TPU is already in use by process with pid 12. Not attempting to load libtpu.so"
    assert says(asked_of, error) == wanted


def test_where_libtpu_is_missing_it_is_said_how_it_comes(asked_of, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = says(asked_of, RuntimeError("Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so"))
    assert said == "libtpu is not installed, which `python -m pip install -e '.[tpu]'` does"


def test_other_devices_are_none(asked_of):
    assert says(asked_of, [device(0, "cpu", "cpu")]) == "jax computes on cpu"


def test_a_slice_of_several_hosts_is_none(asked_of):
    devices = [device(i, host=i // 4) for i in range(16)]
    assert says(asked_of, devices) == "this is one of 4 hosts of a slice, and the gate runs on one host alone"


def test_a_runtime_that_does_not_start_is_none(monkeypatch):
    def process(command, *, timeout, **keywords):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", process)
    with pytest.raises(NoChips, match=f"has not started within {chips.PATIENCE} s"):
        found()


def test_a_process_that_dies_is_none(monkeypatch):
    died = SimpleNamespace(returncode=-6, stdout="", stderr="one\nF1130 Check failed: chips\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: died)
    with pytest.raises(NoChips, match="can use: F1130 Check failed: chips;"):
        found()


def test_who_leaves_the_chips_to_others_starts_none_and_says_what_they_are(monkeypatch):
    set_to = {}
    monkeypatch.setattr(jax.config, "update", set_to.__setitem__)
    about = {"platform": "tpu-v5e", "device_kind": "TPU v5 lite", "device_count": 8, "libtpu": "0.0.50.1"}
    try:
        chips.leave(Chips(about, ("0",)))
        assert set_to == {"jax_platforms": "cpu"}
        assert about.items() <= provenance().items()
    finally:
        devices_of_others({})
    assert provenance()["platform"] == "cpu"


def test_nothing_that_is_loaded_before_the_options_are_known_starts_jax():
    """Or the process that starts the workers would hold their chips. jax refuses this setting once it has started."""
    load = "import conftest, jax; from importlib import import_module; [*map(import_module, conftest.pytest_plugins)]"
    done = subprocess.run(
        [sys.executable, "-c", f"{load}; jax.config.update('jax_num_cpu_devices', 3)"],
        cwd=chips.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
