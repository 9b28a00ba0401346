"""The ledger: what is written is read back, all of it or nothing, and it holds what the report of a run held."""

import os

import pytest

from parity.tolerances import ledger as ledgers_module
from parity.tolerances.entries import BadTable
from parity.tolerances.ledger import (
    HEADER,
    PREDICTED,
    Ledger,
    Observation,
    from_report,
    ledgers,
    path_of,
    read,
    write,
)
from parity.tolerances.platforms import PLATFORMS, TPUS

ONE = Observation("f32", 2.0, 0.5, "mine-bf16-typical-short-dk", 7, {"tiny_keys": 0.25, "typical": 2.0})
LEDGER = Ledger({"commit": "abc", "clean_tree": True, "seeds": "1-2"}, {("mine", "bf16", "dk"): ONE})


def row(**changes):
    by_regime = {"typical": {"units": 1.23456789, "item": "a"}, "tiny_keys": {"units": 3.0, "item": "b"}}
    found = {"implementation": "mine", "dtype": "f64", "quantity": "o", "arithmetic": "f64", "units": 1.23456789}
    return found | {"rms_units": 2.0 / 3, "judged": 5, "worst_item": "a", "by_regime": by_regime} | changes


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / "new" / "cpu.toml"
    write(path, LEDGER)
    assert read(path) == LEDGER
    assert path.read_text().startswith(HEADER)
    assert [x.name for x in path.parent.iterdir()] == ["cpu.toml"]


def test_the_order_of_the_entries_does_not_matter(tmp_path):
    observed = {("b", "f32", "o"): ONE, ("a", "f64", "o"): ONE, ("a", "f64", "dk"): ONE}
    for name, keys in (("one", list(observed)), ("two", list(reversed(observed)))):
        write(tmp_path / name, Ledger({}, {key: observed[key] for key in keys}))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_write_that_fails_leaves_the_old_ledger_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "cpu.toml"
    write(path, LEDGER)

    def no_space(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="no space left"):
        write(path, Ledger({}, {}))
    assert read(path) == LEDGER
    assert [x.name for x in tmp_path.iterdir()] == ["cpu.toml"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[observed]\n",
        "provenance = 1\n[observed.mine]\nf64 = 3\n",
        "[provenance]\n[observed.mine.f64.o]\nmax_units = 1.0\n",
        "[provenance]\n[observed.mine.f64]\no = 3\n",
    ],
)
def test_what_is_no_ledger_is_refused(tmp_path, text):
    path = tmp_path / "cpu.toml"
    path.write_text(text)
    with pytest.raises(BadTable, match=r"cpu.toml: it is not a ledger .* `python -m parity observe` writes a new one"):
        read(path)


def test_a_report_becomes_a_ledger():
    document = {"environment": {"commit": "abc"}, "rows": [row(), row(quantity="dk", judged=0, by_regime={})]}
    found = from_report(document, "3-4")
    assert found.provenance == {"commit": "abc", "seeds": "3-4"}
    assert found.observed == {
        ("mine", "f64", "o"): Observation("f64", 3.0, 0.6667, "b", 5, {"typical": 1.235, "tiny_keys": 3.0})
    }


def test_there_are_as_many_ledgers_as_files(tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers_module, "OBSERVED", tmp_path)
    assert ledgers() == {}
    write(path_of("tpu7x"), LEDGER)
    assert ledgers() == {"tpu7x": LEDGER}


def test_a_prediction_stands_for_every_tpu_until_one_is_observed(tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers_module, "OBSERVED", tmp_path)
    predicted = Ledger({"emulated": "as_written"}, LEDGER.observed)
    write(path_of(PREDICTED), predicted)
    assert ledgers() == dict.fromkeys(TPUS, predicted)
    write(path_of("tpu7x"), LEDGER)
    write(path_of("cpu"), LEDGER)
    assert ledgers() == dict.fromkeys(TPUS, predicted) | {"tpu7x": LEDGER, "cpu": LEDGER}


def test_every_file_is_that_of_a_platform_or_the_prediction():
    assert {path.stem for path in ledgers_module.OBSERVED.glob("*")} <= {*PLATFORMS, PREDICTED}


def test_of_the_ledgers_here_the_prediction_alone_is_emulated():
    for path in ledgers_module.OBSERVED.glob("*"):
        assert ("emulated" in read(path).provenance) == (path.stem == PREDICTED)


def test_a_report_of_emulated_products_has_the_names_of_what_was_emulated():
    document = {"environment": {}, "rows": [row(implementation="mine_as_written"), row(implementation="as_written_2")]}
    found = from_report(document, "1-1", "as_written")
    assert {key[0] for key in found.observed} == {"mine", "as_written_2"}
    assert found.provenance["emulated"] == "as_written"
