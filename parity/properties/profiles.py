"""How many examples, and of which seed: the profiles of hypothesis that the property tests know."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, settings


@dataclass(frozen=True)
class Profile:
    """`examples` a property and subject; `sizes` are compiled for each implementation, half of them in f32.

    `keeps_worst`: what exceeds the recorded worst case is written to worst_cases.toml.
    """

    name: str
    examples: int
    sizes: int
    keeps_worst: bool = False

    def seed(self) -> str | None:
        """What to seed with where no seed is given: a night has its date, a hunt its second, the gate nothing."""
        now = datetime.now(UTC)
        return {"gate": None, "nightly": f"{now:%Y%m%d}", "hunt": f"{now:%Y%m%d%H%M%S}"}[self.name]


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("gate", examples=8, sizes=2),
        Profile("nightly", examples=200, sizes=6),
        Profile("hunt", examples=2000, sizes=12, keeps_worst=True),
    )
}


def register() -> None:
    """Make the profiles known to `--hypothesis-profile`. None is loaded: other tests keep the default of hypothesis."""
    for profile in PROFILES.values():
        settings.register_profile(
            profile.name,
            max_examples=profile.examples,
            derandomize=profile.name == "gate",
            database=None,  # what a run finds is written down by name, in worst_cases.toml
            deadline=None,
            print_blob=False,  # the message has the example itself
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow],
        )


def chosen(name: str | None) -> Profile:
    """The profile of `--hypothesis-profile`, `gate` where none was given. Raises pytest.UsageError on any other."""
    if name is not None and name not in PROFILES:
        raise pytest.UsageError(
            f"--hypothesis-profile {name}: the property tests know the profiles {', '.join(PROFILES)}"
        )
    return PROFILES[name or "gate"]
