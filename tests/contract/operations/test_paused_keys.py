from redbox.testing.conformance.operations.test_paused_keys import *  # noqa: F403  # the suite, on every store of tests/conftest.py
