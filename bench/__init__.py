"""Benchmarks: one file per question, redbox and its alternatives side by side in the same run."""
