"""The HTTP service: ingest, operations, dashboard, metrics and health.

Needs the extra `service`; metrics and health alone need the extra `metrics`.
"""

from typing import Final

#: Where servers listen by default. It is here because commands show it in their help, and import nothing slow for that.
HOST: Final = "127.0.0.1"
