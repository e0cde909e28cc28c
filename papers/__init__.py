"""The papers' tables and figures: what was published, how to run it again, by which rule it is judged, and the results.

A folder for each paper, with its `experiments.py` and its `results/`. Not installed: `rekindle reproduce` finds this
folder in a clone of the repository. Only public names of rekindle are used here.
"""
