"""The papers' data sets and how they are disturbed: tensors in memory, every draw seeded."""

from rekindle.data.catalogue import load
from rekindle.data.dataset import Dataset, Examples, Normalise
from rekindle.data.hub import Source, download

__all__ = ["Dataset", "Examples", "Normalise", "Source", "download", "load"]
