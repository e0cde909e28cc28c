"""The papers' data sets and how they are disturbed: tensors in memory, every draw seeded."""

from rekindle.lab.data.catalog import EMBEDDED, load
from rekindle.lab.data.dataset import Dataset, Normalize
from rekindle.lab.data.hub import Source, download
from rekindle.lab.data.store import cache
from rekindle.training.examples import Examples

__all__ = ["EMBEDDED", "Dataset", "Examples", "Normalize", "Source", "cache", "download", "load"]
