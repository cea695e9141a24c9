"""The stores of `--redbox-url`, which may be given several times; by default memory:."""

from __future__ import annotations

import pytest

from redbox.store.connect import describe
from redbox.testing.conformance.fixtures import _needs, box, open_box  # noqa: F401  # fixtures are found by name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        urls = metafunc.config.getoption("--redbox-url") or ["memory:"]
        metafunc.parametrize("store", [describe(url) for url in urls], scope="session")


@pytest.fixture
def store_url(request: pytest.FixtureRequest, store: str) -> str:
    urls = request.config.getoption("--redbox-url") or ["memory:"]
    return next(url for url in urls if describe(url) == store)
