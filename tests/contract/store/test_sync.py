from redbox.testing.conformance.store.test_sync import *  # noqa: F403  # the suite, on every store of tests/conftest.py
