"""The HTTP service: ingest, operations, dashboard, metrics and health.

Needs the extra `service`; metrics and health alone need the extra `metrics`.
"""
