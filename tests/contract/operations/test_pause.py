from redbox.testing.conformance.operations.test_pause import *  # noqa: F403  # the suite, on every store of tests/conftest.py
