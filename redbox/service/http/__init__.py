"""The HTTP server under the service: sockets, limits, tokens, headers and problem documents."""
