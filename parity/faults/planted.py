"""Every fault as an implementation of its own: `pytest --implementation parity.faults.planted:no_exchange`."""

from implementations.contract import Implementation
from parity.faults.catalogue import CATALOGUE


def __getattr__(name: str) -> Implementation:
    for fault in CATALOGUE:
        if fault.name == name:
            return fault.implementation
    raise AttributeError(f"module {__name__} has no {name}; its faults are {', '.join(x.name for x in CATALOGUE)}")
