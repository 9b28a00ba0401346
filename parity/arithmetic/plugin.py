"""`--matmul-precision`: would the kernel still be right, if its products took fewer passes of a TPU's matrix unit?"""

import pytest

from parity.arithmetic.implementation import with_products
from parity.plugin import AS_RUN, IMPLEMENTATIONS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("gdn-parity").addoption(
        "--matmul-precision",
        choices=("default", "high", "highest", "as_written"),
        help="judge every implementation with its f32 products in one pass of bf16 (default), three (high) or six "
        "(highest), or in as many as each product asks for (as_written), emulated on any machine",
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    policy = config.getoption("matmul_precision")
    return [
        f"f32 products as a matrix unit makes them: {policy}; f64, exp, log and triangular_solve are left as they are"
    ] * (policy is not None)


@pytest.hookimpl(trylast=True)  # when the implementations are known
def pytest_configure(config: pytest.Config) -> None:
    policy = config.getoption("matmul_precision")
    if policy is None:
        return
    try:
        config.stash[AS_RUN] = {x: with_products(x, policy) for x in config.stash[IMPLEMENTATIONS]}
    except ValueError as error:
        raise pytest.UsageError(f"--matmul-precision: {error}") from None
