from redbox.testing.conformance.operations.test_why_facts import *  # noqa: F403  # the suite, on every store of tests/conftest.py
