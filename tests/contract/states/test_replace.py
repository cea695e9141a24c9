from redbox.testing.conformance.states.test_replace import *  # noqa: F403  # the suite, on every store of tests/conftest.py
