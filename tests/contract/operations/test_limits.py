from redbox.testing.conformance.operations.test_limits import *  # noqa: F403  # the suite, on every store of tests/conftest.py
