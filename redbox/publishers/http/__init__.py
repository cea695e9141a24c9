"""The HTTP publisher: its connections, signatures, CloudEvents and responses."""
