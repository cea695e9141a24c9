from redbox.testing.conformance.operations.test_actions import *  # noqa: F403  # the suite, on every store of tests/conftest.py
