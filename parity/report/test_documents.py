"""A directory is read whole or not at all, and the message says which file is wrong and where."""

import json
from pathlib import Path

import pytest

from parity.report.accuracy import Record, as_json, table
from parity.report.documents import CannotRead, Run, read
from parity.report.json_form import encode


def _write(directory: Path, run: Run) -> None:
    for name, document in (("accuracy", run.accuracy), ("failures", run.failures), ("kills", run.kills)):
        (directory / f"{name}.json").write_text(encode(document), encoding="utf-8")


def test_all_three_are_read_back(tmp_path: Path, run: Run) -> None:
    _write(tmp_path, run)
    found = read(tmp_path)
    assert (found.accuracy, found.failures, found.kills) == (run.accuracy, run.failures, run.kills)


@pytest.mark.parametrize("absent", ["accuracy", "failures", "kills"])
def test_each_may_be_absent(tmp_path: Path, run: Run, absent: str) -> None:
    _write(tmp_path, run)
    (tmp_path / f"{absent}.json").unlink()
    found = read(tmp_path)
    assert [name for name in ("accuracy", "failures", "kills") if getattr(found, name) is None] == [absent]


def test_the_table_of_the_gate_is_read(tmp_path: Path) -> None:
    record = Record("mine", "f64", "o", "item", "f64", None, float("inf"), 32.0, 1.0, False, "typical", "f64")
    (tmp_path / "accuracy.json").write_text(as_json(table([record]), "title", {"jax": "0"}), encoding="utf-8")
    accuracy = read(tmp_path).accuracy
    assert accuracy is not None
    assert [(row.key, row.units, row.share, row.failed, row.limit_row) for row in accuracy.rows] == [
        (("mine", "f64", "o"), float("inf"), float("inf"), 1, "f64")
    ]


def test_a_directory_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match="there is no directory"):
        read(tmp_path / "nowhere")
    with pytest.raises(CannotRead, match=r"has none of accuracy\.json, failures\.json, kills\.json and exchanged"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("accuracy", '{"rows": [', r"accuracy\.json is not JSON.*cut short"),
        ("accuracy", '{"table": []}', r"accuracy\.json is not what .*has no title, rows; its keys are table"),
        ("failures", "[]", r"failures\.json is not what .*expected an object"),
        ("kills", '{"kills": [{"fault": "x"}]}', r"kills\.json is not what .*kills\[0\] has no cause"),
        ("kills", b"\xff\xfe", r"kills\.json cannot be read"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, run: Run, name: str, text: str | bytes, says: str) -> None:
    _write(tmp_path, run)
    (tmp_path / f"{name}.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CannotRead, match=says):
        read(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ranks": 4}, r"failures\[0\] is at odds with itself: o has units of 3 ranks; expected 4"),
        ({"tokens": 600}, r"o have \[row\]\[block\]\[head\] of \(2, 2, 3\); expected 4 blocks everywhere"),
        ({"tokens": 2}, "2 tokens cannot be split over 3 ranks"),
        ({"quantities": {"o": {"limit": 0, "units": []}}}, "o has a limit of 0; expected more than 0"),
        ({"quantities": {"o": {"limit": 1, "units": [[[[1]]], [[[1]]], []]}}}, "expected 2 blocks"),
    ],
)
def test_units_that_do_not_fit_the_problem_are_not_drawn(
    tmp_path: Path, run: Run, change: dict[str, object], says: str
) -> None:
    document = json.loads(encode(run.failures))
    document["failures"][0] |= change
    (tmp_path / "failures.json").write_text(json.dumps(document))
    with pytest.raises(CannotRead, match=says):
        read(tmp_path)


def test_a_quantity_without_a_limit_is_damaged(tmp_path: Path, run: Run) -> None:
    document = json.loads(encode(run.kills))
    del document["kills"][1]["limits"]["dq"]
    (tmp_path / "kills.json").write_text(json.dumps(document))
    with pytest.raises(CannotRead, match=r"kills\[1\] is at odds with itself: killed_fault has no limit for dq"):
        read(tmp_path)
