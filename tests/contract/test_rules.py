from redbox.testing.conformance.test_rules import *  # noqa: F403  # the suite, on every store of tests/conftest.py
