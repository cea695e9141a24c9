"""`nats://`: events as messages of a JetStream stream."""
