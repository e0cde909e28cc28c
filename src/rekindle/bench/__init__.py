"""Specs, runs, sweeps, result rows and their statistics: the only reader and writer of result files."""
