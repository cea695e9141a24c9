"""The conformance suite: at least one test per requirement line, for any store.

    redbox --url redis://localhost:6379/0 conform
    python -m pytest --pyargs redbox.testing.conformance --redbox-url redis://localhost:6379/0

Every test makes boxes of its own and removes them.
"""
