"""Alerts: operational events about a box and its relays, sent to a target of their own."""

from redbox.relay.alerts.service import Alerts as Alerts
