"""The Spark data source `redbox`: what runs inside Spark when a box is read, written or streamed."""
