"""Edits, how they are applied and recorded, method cards and registry."""
