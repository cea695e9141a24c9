from redbox.testing.conformance.operations.test_rates_history import *  # noqa: F403  # the suite, on every store of tests/conftest.py
