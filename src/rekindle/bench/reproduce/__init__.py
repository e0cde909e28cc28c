"""The papers' tables and figures as data: what was published, what to run, and a rule for the verdict fixed before."""
