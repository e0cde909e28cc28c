"""The papers' data sets and how they are disturbed, every draw seeded; and text as tokens."""

from rekindle.lab.data.catalog import EMBEDDED, load
from rekindle.lab.data.dataset import Dataset, Normalize
from rekindle.lab.data.encoding import Bpe, Bytes, NewBpe, read_bpe, tokenizer
from rekindle.lab.data.hub import Source, download
from rekindle.lab.data.hub_text import HubCorpus, TextSource
from rekindle.lab.data.preparing import prepare
from rekindle.lab.data.store import cache
from rekindle.lab.data.text_files import FileCorpus
from rekindle.training.examples import Examples
from rekindle.training.tokens import Tokens

__all__ = [
    "EMBEDDED",
    "Bpe",
    "Bytes",
    "Dataset",
    "Examples",
    "FileCorpus",
    "HubCorpus",
    "NewBpe",
    "Normalize",
    "Source",
    "TextSource",
    "Tokens",
    "cache",
    "download",
    "load",
    "prepare",
    "read_bpe",
    "tokenizer",
]
