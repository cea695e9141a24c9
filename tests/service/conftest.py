from tests.service.serving import service  # noqa: F401  # fixtures are found by name
