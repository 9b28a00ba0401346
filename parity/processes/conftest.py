"""The marker of what starts several processes."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "processes: a part of the gate on two processes of four CPU devices each")
