"""The conformance suite: tests of the requirements that any store must meet.

    redbox --url redis://localhost:6379/0 conform
    python -m pytest --pyargs redbox.testing.conformance --redbox-url redis://localhost:6379/0

Every test creates its own boxes and removes them.
"""
