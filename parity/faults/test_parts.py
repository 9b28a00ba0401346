"""The table of mistakes in the parts around the rule."""

from parity.faults.parts import Seen, as_markdown, as_text

SEEN = [
    Seen("layer", "no_gate", "f64", 32.0, {"y": 3.2e6, "dx": 64.0, "final_recurrent_state": 0.5}),
    Seen("convolution", "no_halo", "f64", 32.0, {"y": float("nan"), "dx": 1.0}),
    Seen("layer", "invisible", "f32", 32.0, {"y": 32.0}),
]


def test_it_says_how_many_quantities_are_wrong_and_by_how_much():
    assert as_text(SEEN).splitlines() == [
        "part         mistake    dtype  wrong   least       most",
        "convolution  no_halo    f64    1 of 2  y nan       y nan",
        "layer        invisible  f32    0 of 1  SURVIVES",
        "layer        no_gate    f64    2 of 3  dx 2.0e+00  y 1.0e+05",
    ]


def test_as_markdown():
    lines = as_markdown(SEEN, "Parts").splitlines()
    assert lines[0] == "## Parts"
    assert lines[2] == "| part | mistake | dtype | wrong | least | most |"
    assert lines[-1] == "| layer | no_gate | f64 | 2 of 3 | dx 2.0e+00 | y 1.0e+05 |"
