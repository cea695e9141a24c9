"""The archive of a box: terminal events as Parquet files."""
