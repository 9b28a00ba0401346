"""Devices are recognised by what jax calls them, and what is not known is not guessed."""

from types import SimpleNamespace

import jax
import pytest

from parity.tolerances.platforms import PLATFORMS, TPUS, current, platform_of

KINDS = {
    "cpu": ["cpu"],
    "tpu-v5e": ["TPU v5 lite", "TPU v5e"],
    "tpu-v5p": ["TPU v5", "TPU v5p"],
    "tpu-v6e": ["TPU v6 lite", "TPU v6e"],
    "tpu7x": ["TPU7x"],
    "gpu": ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB", "AMD Instinct MI300X", "gfx942"],
}


@pytest.mark.parametrize(("platform", "kind"), [(p, kind) for p, kinds in KINDS.items() for kind in kinds])
def test_a_device_kind_names_its_platform(platform, kind):
    assert platform_of(kind) == platform


def test_every_platform_has_a_device():
    assert KINDS.keys() == set(PLATFORMS)
    assert {platform for platform, kinds in KINDS.items() if kinds[0].startswith("TPU")} == set(TPUS)


@pytest.mark.parametrize("kind", ["TPU v4", "TPU v5 lite pod", "TPU v2", "TPU7", "TPU v8", "tpu", "", "METAL"])
def test_what_is_not_known_is_no_platform(kind):
    assert platform_of(kind) is None


def test_these_tests_run_on_what_jax_says():
    assert current() == platform_of(jax.devices()[0].device_kind)


@pytest.mark.parametrize(
    ("backend", "kind", "platform"),
    [
        ("gpu", "a card without a known name", "gpu"),
        ("rocm", "0x74a1", "gpu"),
        ("cpu", "some processor", "cpu"),
        ("tpu", "TPU v6 lite", "tpu-v6e"),
        ("tpu", "TPU v3", None),
    ],
)
def test_the_backend_decides_where_the_kind_is_any_name(monkeypatch, backend, kind, platform):
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(platform=backend, device_kind=kind)])
    assert current() == platform
