"""The suite for a user who has the permissions of an operator, as docs/permissions.md gives them, and no others.

What the tests themselves send behind redbox's back is permitted in addition.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redbox.testing.conformance.events.test_attempts import *  # noqa: F403
from redbox.testing.conformance.events.test_available_at import *  # noqa: F403
from redbox.testing.conformance.events.test_contents import *  # noqa: F403
from redbox.testing.conformance.events.test_fields import *  # noqa: F403
from redbox.testing.conformance.events.test_history import *  # noqa: F403
from redbox.testing.conformance.events.test_identity import *  # noqa: F403
from redbox.testing.conformance.operations.test_actions import *  # noqa: F403
from redbox.testing.conformance.operations.test_listing import *  # noqa: F403
from redbox.testing.conformance.operations.test_log import *  # noqa: F403
from redbox.testing.conformance.operations.test_replay import *  # noqa: F403
from redbox.testing.conformance.states.test_full_box import *  # noqa: F403
from redbox.testing.conformance.states.test_phases import *  # noqa: F403
from redbox.testing.conformance.states.test_retention import *  # noqa: F403
from redbox.testing.conformance.states.test_unique_keys import *  # noqa: F403
from redbox.testing.conformance.store.test_claim import *  # noqa: F403
from redbox.testing.conformance.store.test_put import *  # noqa: F403
from redbox.testing.conformance.store.test_reading import *  # noqa: F403
from redbox.testing.conformance.store.test_reap import *  # noqa: F403
from redbox.testing.conformance.store.test_settle import *  # noqa: F403
from redbox.testing.conformance.store.test_transactions import *  # noqa: F403
from redbox.testing.conformance.test_bulk import *  # noqa: F403  # the suite
from redbox.testing.conformance.test_lifecycle import *  # noqa: F403
from redbox.testing.conformance.test_ordering import *  # noqa: F403
from redbox.testing.conformance.test_rules import *  # noqa: F403
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
