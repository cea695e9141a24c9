from redbox.testing.conformance.operations.test_why_damage import *  # noqa: F403  # the suite, on every store of tests/conftest.py
