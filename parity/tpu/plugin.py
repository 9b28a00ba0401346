"""`--tpu-interpret`: Pallas kernels, ours and others', run as the interpreter of TPUs has it, on any machine.

And where there is no libtpu, nothing is compiled for TPUs.
"""

import importlib.util
from collections.abc import Generator

import pytest

from implementations.pallas.interpreter import RACES_ARE_ERRORS, interpreted_as_on_a_tpu

_LIBTPU = importlib.util.find_spec("libtpu") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("gdn-parity").addoption(
        "--tpu-interpret",
        action="store_true",
        help="interpret Pallas kernels with a TPU's memories and copies: what nobody has written is NaN, and reads out "
        "of bounds and races are errors; slow: narrow it with -k",
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    if not config.getoption("tpu_interpret"):
        return (
            []
            if _LIBTPU
            else ["nothing is compiled for TPUs (-m tpu_aot): that takes libtpu, and tox -e tpu-aot has it"]
        )
    races = "races are errors" if RACES_ARE_ERRORS else "races are not looked for, which takes jax 0.12"
    return [f"kernels as on a TPU: memory that nobody has written is NaN, reads out of bounds are errors, {races}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _LIBTPU:
        return
    for_tpus = [item for item in items if item.get_closest_marker("tpu_aot")]
    config.hook.pytest_deselected(items=for_tpus)
    items[:] = [item for item in items if not item.get_closest_marker("tpu_aot")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not item.config.getoption("tpu_interpret"):
        return (yield)
    with interpreted_as_on_a_tpu():
        return (yield)
