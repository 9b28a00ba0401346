"""`--tpu-interpret`: Pallas kernels, ours and others', run as the interpreter of TPUs has it, on any machine."""

from collections.abc import Generator

import pytest

from implementations.pallas.interpreter import RACES_ARE_ERRORS, interpreted_as_on_a_tpu


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("gdn-parity").addoption(
        "--tpu-interpret",
        action="store_true",
        help="interpret Pallas kernels with a TPU's memories and copies: what nobody has written is NaN, and reads out "
        "of bounds and races are errors; slow: narrow it with -k",
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    if not config.getoption("tpu_interpret"):
        return []
    races = "races are errors" if RACES_ARE_ERRORS else "races are not looked for, which takes jax 0.12"
    return [f"kernels as on a TPU: memory that nobody has written is NaN, reads out of bounds are errors, {races}"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not item.config.getoption("tpu_interpret"):
        return (yield)
    with interpreted_as_on_a_tpu():
        return (yield)
