"""The embedded server: a Valkey of this machine, started on demand."""
