"""Self-contained HTML pages: one look for audit, comparison and report."""
