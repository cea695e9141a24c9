"""The suite for a user who has the permissions of an operator, as docs/permissions.md gives them, and no others.

What the tests themselves send behind redbox's back is permitted in addition.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redbox.testing.conformance.test_bulk import *  # noqa: F403  # the suite
from redbox.testing.conformance.test_events import *  # noqa: F403
from redbox.testing.conformance.test_lifecycle import *  # noqa: F403
from redbox.testing.conformance.test_operations import *  # noqa: F403
from redbox.testing.conformance.test_ordering import *  # noqa: F403
from redbox.testing.conformance.test_rules import *  # noqa: F403
from redbox.testing.conformance.test_store import *  # noqa: F403
from redbox.testing.conformance.test_uniqueness import *  # noqa: F403
from redbox.testing.conformance.test_wakeups import *  # noqa: F403
from redbox.testing.conformance.test_writing import *  # noqa: F403
from tests import servers
from tests.roles import FOR_DURABILITY, acl_rules

DURABLE = tuple(f"+{command.lower()}" for command in FOR_DURABILITY["replicas=N"])
#: What only the tests use: to look behind redbox's back, and for keys of their own in a transaction.
TESTS = ("+incrby", "+info", "+pttl", "+rename", "+type", "+xrange", "~*:{redbox:*}")


@pytest.fixture(scope="module")
def permitted_url() -> Iterator[str]:
    with servers.redis_server() as server, server.client() as client:
        rules = (*acl_rules("operator", "*").split(), *DURABLE, *TESTS)
        client.execute_command("ACL", "SETUSER", "operator", "on", ">pw", *rules)
        yield f"redis://operator:pw@{server.host}:{server.port}/0"


@pytest.fixture
def store() -> str:
    return "permitted"


@pytest.fixture
def store_url(permitted_url: str) -> str:
    return permitted_url
