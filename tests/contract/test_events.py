from redbox.testing.conformance.test_events import *  # noqa: F403  # the suite, on every store of tests/conftest.py
