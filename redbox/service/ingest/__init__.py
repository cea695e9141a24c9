"""Ingest: events over HTTP. A 202 means that the store has the event at the durability that was asked for."""
