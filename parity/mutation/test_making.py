"""What is taken for a mutant, and what is left as it is."""

import pytest

from parity.mutation.mutants import mutants


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in mutants(source)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = a < b", ["x = a <= b", "x = a >= b"]),
        ("x = a == b", ["x = a != b"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a + b", ["x = a - b"]),
        ("x = a and b", ["x = a or b", "x = a", "x = b"]),
        ("x = not a", ["x = a"]),
        ("x = a if c else b", ["x = a", "x = b"]),
        ("x = a[1:n]", ["x = a[:n]", "x = a[1:]", "x = a[2:n]"]),
        ("x = [a for a in b if c]", ["x = [a for a in b]"]),
        ("x = f(a, axis=b)", ["x = f(a)"]),
        ("x = np.any(a)", ["x = np.all(a)"]),
        ("x = min(a, b)", ["x = max(a, b)"]),
        ("x = True", ["x = False"]),
        ("x = 'bf16'", ["x = 'bf16x'"]),
        ("x = 0.5", ["x = 2.0"]),
        ("f(a)", ["pass"]),
        ("if a:\n    x = b", ["if not a:"]),
    ],
)
def test_one_thing_is_changed_at_a_time(before: str, after: list[str]) -> None:
    assert changes(before) == [f"{before.splitlines()[0]}  ->  {changed}" for changed in after]


def test_each_operator_of_a_chain_is_changed_on_its_own() -> None:
    assert changes("x = a == b == c") == [
        "x = a == b == c  ->  x = a != b == c",
        "x = a == b == c  ->  x = a == b != c",
    ]


def test_what_is_for_people_or_for_the_type_checker_stays() -> None:
    source = '''
"""A module."""
import a.b
def f(x: "T < 3") -> "T > 3":
    """At most 3."""
    return f"{x:.3g}"
'''
    assert changes(source) == []


def test_a_check_is_taken_out_and_its_message_stays() -> None:
    assert changes("raise ValueError('no ' + 'x')") == ["raise ValueError('no ' + 'x')  ->  pass"]


def test_a_mutant_knows_its_line_and_is_a_module() -> None:
    (mutant,) = mutants("\n\ndef f(a, b):\n    return a * b\n")
    assert mutant.line == 4
    space: dict[str, object] = {}
    exec(mutant.source, space)
    assert space["f"](6.0, 3.0) == 2.0  # type: ignore[operator]
