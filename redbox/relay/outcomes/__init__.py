"""What an attempt means for its event and its target, and how it is settled."""
