"""All entries, paper by paper."""

from __future__ import annotations

from rekindle.bench.reproduce import elsewhere, fire, frozen, frozen_tasks, layerwise, layerwise_images, soft_rescaling
from rekindle.bench.reproduce.entry import Entry
from rekindle.core.errors import SettingsError

PAPERS = (layerwise, layerwise_images, soft_rescaling, frozen, frozen_tasks, fire, elsewhere)
ENTRIES: dict[str, Entry] = {entry.name: entry for paper in PAPERS for entry in paper.ENTRIES}


def entry(name: str) -> Entry:
    """Return an entry by its name.

    Raises:
        SettingsError: There is none.

    Example:
        >>> entry("layerwise-table-1").where
        'Table 1'
    """
    if name not in ENTRIES:
        raise SettingsError(
            expected=f"an entry: {', '.join(ENTRIES)}", got=repr(name), fix="see `rekindle reproduce --list`"
        )
    return ENTRIES[name]
