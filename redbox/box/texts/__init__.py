"""Events, records, stats and settings as text: JSON, and what people type and read."""
