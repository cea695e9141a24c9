from redbox.testing.conformance.fixtures import _needs, box, open_box  # noqa: F401  # fixtures are found by name
