"""What a server is and permits: its facts, permissions, foreign keys, and how durable a write is."""
