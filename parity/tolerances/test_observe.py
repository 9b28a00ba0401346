"""The command: which seeds, what it prints, what it writes, and its exit status. The gate itself is played here."""

import argparse
import json
import subprocess
from types import SimpleNamespace

import pytest

from parity.__main__ import main
from parity.tolerances import ledger as ledgers_module
from parity.tolerances import observe
from parity.tolerances.ledger import PREDICTED, path_of, read
from parity.tolerances.platforms import PLATFORMS, current


class Gate:
    """Plays `python -m pytest`: leaves a report with these units, and remembers how it was called."""

    def __init__(self, units=1.0, status=0, report=True, clean=True, quantities=("o", "dk"), name="mine"):
        self.units, self.status, self.report, self.clean, self.quantities = units, status, report, clean, quantities
        self.name = name
        self.commands = []

    def __call__(self, command, **keywords):
        if "pytest" not in command:
            return SimpleNamespace(returncode=0, stdout="cpu cpu\n", stderr="")
        self.commands.append(command)
        directory = command[-1].removeprefix("--parity-report=")
        if self.report:
            with open(f"{directory}/accuracy.json", "w") as file:
                json.dump(self._document(), file)
        return SimpleNamespace(returncode=self.status)

    def _document(self):
        common = {"implementation": self.name, "dtype": "f64", "arithmetic": "f64", "judged": 3}
        by_regime = {"typical": {"units": self.units, "item": "mine-f64-typical"}}
        numbers = {"units": self.units, "rms_units": self.units, "by_regime": by_regime}
        rows = [common | numbers | {"quantity": quantity} for quantity in self.quantities]
        return {"environment": {"clean_tree": self.clean, "commit": "abc"}, "rows": rows}


@pytest.fixture
def observing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ledgers_module, "OBSERVED", tmp_path)

    def run(gate, *arguments):
        monkeypatch.setattr(subprocess, "run", gate)
        status = main(["observe", *arguments])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return run


def test_the_first_observation_takes_the_first_seeds_and_the_next_those_that_follow(observing):
    gate = Gate()
    assert observing(gate)[0] == observing(gate)[0] == observing(gate, "--seeds", "9")[0] == observing(gate)[0] == 0
    asked = [command[command.index("--seeds") + 1] for command in gate.commands]
    assert asked == ["1-2", "3-4", "9-9", "10-11"]
    assert gate.commands[0][1:6] == ["-m", "pytest", "parity", "-m", "gate"]
    assert read(path_of("cpu")).provenance == {"clean_tree": True, "commit": "abc", "seeds": "10-11"}


def test_the_difference_is_printed_and_the_ledger_rewritten(observing):
    observing(Gate(units=1.0))
    status, printed = observing(Gate(units=1.25))
    assert status == 0
    assert "observing cpu on seeds 3-4" in printed
    assert "1.25" in printed
    assert "0 of 2 entries are worse, 0 too near to their limit" in printed
    assert read(path_of("cpu")).observed["mine", "f64", "o"].max_units == 1.25


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (Gate(units=4.5), "2 of 2 entries are worse"),
        (Gate(quantities=("o",)), "1 of 2 entries are worse"),
        (Gate(units=1.0), "0 of 2 entries are worse"),
    ],
)
def test_what_is_worse_is_written_and_red(observing, after, says):
    observing(Gate(units=1.0))
    status, printed = observing(after)
    assert says in printed
    assert status == (0 if says.startswith("0") else 1)
    assert read(path_of("cpu")).provenance["seeds"] == "3-4"


def test_what_is_too_near_to_its_limit_is_red(observing):
    status, printed = observing(Gate(units=20.0))
    assert status == 1
    assert "mine-f64-o in typical: 20 units are less than 2 times below the limit 32 of row f64" in printed


@pytest.mark.parametrize("gate", [Gate(status=1), Gate(status=0, report=False), Gate(status=2, report=False)])
def test_a_red_gate_leaves_the_ledger_as_it_was(observing, gate):
    observing(Gate())
    before = path_of("cpu").read_bytes()
    status, printed = observing(gate)
    assert status == 1
    assert "The gate is red" in printed
    assert path_of("cpu").read_bytes() == before


def test_a_tree_that_is_not_clean_is_said_to_be_so(observing):
    assert "The tree is not clean" in observing(Gate(clean=False))[1]
    assert "The tree is not clean" not in observing(Gate(clean=True))[1]


def test_a_prediction_is_of_emulated_products_and_says_so(observing):
    """Of what a TPU has: no f64. The names are those of the implementations, for rows of the table go by them."""
    gate = Gate(name="mine_as_written")
    assert observing(gate, "--emulated")[0] == 0
    (command,) = gate.commands
    assert command[command.index("--matmul-precision") + 1] == "as_written"
    assert command[command.index("-k") + 1] == "not f64"
    assert read(path_of(PREDICTED)).provenance["emulated"] == "as_written"
    assert {key[0] for key in read(path_of(PREDICTED)).observed} == {"mine"}
    assert not path_of("cpu").exists()


def test_what_is_observed_is_no_prediction_and_leaves_one_alone(observing):
    observing(Gate(name="mine_as_written"), "--emulated")
    before = path_of(PREDICTED).read_bytes()
    gate = Gate(name="mine_as_written")
    observing(gate)
    assert "--matmul-precision" not in gate.commands[0]
    assert "emulated" not in read(path_of("cpu")).provenance
    assert {key[0] for key in read(path_of("cpu")).observed} == {"mine_as_written"}
    assert path_of(PREDICTED).read_bytes() == before


def test_a_prediction_too_near_to_a_limit_is_red_once(observing):
    """The limit of whichever TPU is nearest: not a line for each."""
    status, printed = observing(Gate(units=20.0, name="mine_as_written"), "--emulated")
    assert status == 1
    assert printed.count("mine-f64-o in typical: 20 units are less than 2 times below the limit 32 of row f64") == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [("0-3", "seed 0 is the gate's own"), ("5-2", "expected a seed or a range"), ("few", "expected a seed or a range")],
)
def test_seeds_that_are_none_are_refused_before_anything_runs(observing, given, says):
    gate = Gate()
    status, printed = observing(gate, "--seeds", given)
    assert (status, gate.commands) == (2, [])
    assert says in printed


def test_a_device_without_a_ledger_is_refused_before_anything_runs(observing, monkeypatch):
    def unknown(command, **_):
        assert "pytest" not in command
        return SimpleNamespace(returncode=0, stdout="None TPU v3\n", stderr="")

    status, printed = observing(unknown)
    assert status == 2
    assert "the device 'TPU v3' is none of cpu, tpu-v5e, tpu-v5p, tpu-v6e, tpu7x, gpu" in printed


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_gate_runs_on_tpus_where_the_ledger_is_of_tpus(monkeypatch, observing, platform):
    monkeypatch.setattr(observe, "_platform", lambda: platform)
    gate = Gate()
    assert observing(gate)[0] == 0
    assert ("--tpu" in gate.commands[0]) == (platform in ("tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu7x"))
    assert path_of(platform).exists()


def test_the_platform_is_asked_of_another_process():
    assert observe._platform() == current()


def test_a_jax_that_does_not_start_is_reported(observing):
    status, printed = observing(lambda *_, **__: SimpleNamespace(returncode=1, stdout="", stderr="no backend"))
    assert status == 2
    assert "jax does not start here:\nno backend" in printed


def test_a_ledger_that_cannot_be_read_is_one_clear_error(observing):
    path_of("cpu").write_text("not toml")
    status, printed = observing(Gate())
    assert status == 2
    assert "it is not TOML" in printed


def test_the_command_line_has_two_options():
    parser = argparse.ArgumentParser()
    observe.add_arguments(parser)
    assert vars(parser.parse_args([])) == {"seeds": None, "emulated": False}
