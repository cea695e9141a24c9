"""Real servers for tests, each started once, when the first test asks for it."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import servers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--specification", action="store_true", help="fail unless every test named in docs/specification.md passed"
    )

    parser.addoption("--stores", help="stores to test on, such as memory,redis; all by default")


#: Stores on which these folders are tested in the campaign, unless --stores names them: they run the same scripts, and
#: tests/integration shows in every run what is special about them.
CAMPAIGN_STORES = ("embedded", "cluster")
TESTS = Path(__file__).parent
CAMPAIGN_FOLDERS = {TESTS / name for name in ("contract", "pipeline", "relay", "consumer")}
#: Folders whose files take long. They run first: at the end, one of them would leave the other processes idle.
SLOW_FOLDERS = ("pipeline", "dashboard", "relay", "integration", "service", "cli", "docs", "examples")


@pytest.hookimpl(optionalhook=True)  # called by pytest-xdist, if it is there
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keeps the tests of a file in one process, which starts their servers once, and those of Spark in one too."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "pipeline" if nodeid.startswith("tests/pipeline/") else nodeid.partition("::")[0]

        def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
            # Schemathesis gives one id to all its tests. Without the numbers, only one test of an id would run.
            super().add_node_collection(node, [f"{nodeid}@{number}" for number, nodeid in enumerate(collection)])

    config.option.loadscopereorder = False  # SLOW_FOLDERS decides what comes first
    return ByFile(config, log)


def pytest_collection_finish() -> None:
    """Leaves the thousands of collected tests out of garbage collections: a full one of them holds up event loops for
    half a second, which some tests take for a defect."""
    gc.collect()
    gc.freeze()


def _place(item: pytest.Item) -> int:
    folder = item.path.relative_to(TESTS).parts[0] if TESTS in item.path.parents else ""
    return SLOW_FOLDERS.index(folder) if folder in SLOW_FOLDERS else len(SLOW_FOLDERS)


@pytest.hookimpl(tryfirst=True)  # before marks are selected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_place)
    stores = config.getoption("--stores")
    if stores:
        chosen = (None, *stores.split(","))
        config.hook.pytest_deselected(items=[item for item in items if _store_of(item) not in chosen])
        items[:] = [item for item in items if _store_of(item) in chosen]
        return
    for item in items:
        if _store_of(item) in CAMPAIGN_STORES and CAMPAIGN_FOLDERS.intersection(item.path.parents):
            item.add_marker(pytest.mark.campaign)


def _store_of(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    return None if call is None else call.params.get("store", call.params.get("box_url"))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--specification"):
        from tests.statement import Statement

        config.pluginmanager.register(Statement(), "redbox-specification")


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Debian's Redis 7."""
    with servers.redis_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def cluster_url() -> Iterator[str]:
    """A cluster of three nodes."""
    with servers.cluster() as cluster:
        yield cluster.url


@pytest.fixture(scope="session")
def embedded_url() -> Iterator[str]:
    """The embedded server, kept up for the whole run."""
    from redbox.store.embedded import server as embedded

    with tempfile.TemporaryDirectory(prefix="redbox-") as directory:
        data = Path(directory) / "data"
        embedded.acquire(data)
        yield f"embedded:{data}"
        embedded.release(data)
        assert embedded.wait_stopped(data)


@pytest.fixture(params=["memory", "embedded", "redis", "cluster"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, store: str) -> str:
    return "memory:" if store == "memory" else str(request.getfixturevalue(f"{store}_url"))
