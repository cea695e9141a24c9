"""The relay: claims, publishes and settles events, with retries, a breaker and a graceful stop."""

from redbox.relay.outcomes.breaker import Breaker, Circuit
from redbox.relay.relay import Relay
from redbox.relay.report import Summary

__all__ = ["Breaker", "Circuit", "Relay", "Summary"]
