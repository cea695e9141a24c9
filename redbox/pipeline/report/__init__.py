"""The report about a box: tables, and a page with plots."""
