"""RO: inspection, replay, and actions of operators."""
