from redbox.testing.conformance.test_damage import *  # noqa: F403  # the suite, on every store of tests/conftest.py
