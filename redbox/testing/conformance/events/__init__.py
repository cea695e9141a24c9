"""EM: the event model."""
