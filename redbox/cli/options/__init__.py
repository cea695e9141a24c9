"""Options and parameter types that commands share."""
