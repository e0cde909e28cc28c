"""Settings that must be there before torch is imported, by every test worker."""

import os

# Two workers with a thread pool each on two cores is 10-50 times slower than one thread each.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Tests build their models from configurations; none may wait for a network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every machine and run; loaded machines are no failure.
settings.register_profile(
    "rekindle", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("rekindle")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout that holds README.md, src and tests."""
    return Path(__file__).resolve().parent.parent
