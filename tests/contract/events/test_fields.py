from redbox.testing.conformance.events.test_fields import *  # noqa: F403  # the suite, on every store of tests/conftest.py
