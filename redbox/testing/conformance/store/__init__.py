"""SC: the contract of every store."""
