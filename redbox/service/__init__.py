"""The HTTP service: ingest, operations, dashboard, metrics and health. Needs the extra `service`."""
