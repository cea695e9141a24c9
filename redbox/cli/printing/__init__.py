"""What commands print: tables, records, logs and errors."""
