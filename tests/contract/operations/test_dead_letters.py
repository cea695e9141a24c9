from redbox.testing.conformance.operations.test_dead_letters import *  # noqa: F403  # the suite, on every store of tests/conftest.py
