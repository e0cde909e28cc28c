"""Names of 0.1 that were moved or renamed: asking for one raises with the new one. Goes with the release after 0.2."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

# Of the package itself: `rk.data` and so on.
NAMES = {"PlanWarning": "rk.NoEffectWarning", "data": "rk.lab.data", "models": "rk.lab.models"}
# Of modules: what was there, and where it is now.
MODULES = {
    "auditing": "rekindle.diagnosis",
    "bench": "rekindle.lab.runs (spec, sweep, store, engines), rekindle.comparison (compare), rekindle.statistics, and "
    "the folder papers of the repository (reproduce)",
    "core": "rekindle.errors, rekindle.seeds, rekindle.edits (edit, apply, plan, record), rekindle.methods (card, "
    "settings, spec, registry, running) and rekindle.graph.regions (where)",
    "data": "rekindle.lab.data",
    "interventions": "rekindle.methods.one_shot",
    "models": "rekindle.lab.models",
    "protocols": "rekindle.lab.protocols, and rekindle.training for the loop",
    "recalibrate": "rekindle.edits.recalibrate",
    "recycle": "rekindle.methods.recycling",
    "recyclers": "rekindle.methods.recyclers",
    "report": "rekindle.pages and rekindle.lab.report",
    "steps": "rekindle.methods.per_step, and rekindle.methods.optimizers for muon",
    "treat": "rekindle.methods.apply",
}


class RenamedModules(importlib.abc.MetaPathFinder):
    """Says where an old module went. It stands last, so that it is asked for nothing that is there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return nothing.

        Raises:
            ModuleNotFoundError: The module was there in 0.1; the message has the new name.
        """
        package, _, name = fullname.partition(".")
        if package == "rekindle" and name in MODULES:
            told = f"{fullname} is now {MODULES[name]}; CHANGELOG.md has the whole list"
            raise ModuleNotFoundError(told, name=fullname)
        return None


def refuse_old_modules() -> None:
    """Have old modules refused with their new names, once in a process."""
    if not any(isinstance(finder, RenamedModules) for finder in sys.meta_path):
        sys.meta_path.append(RenamedModules())


def refuse_old_name(owner: str, name: str, new: str) -> AttributeError:
    """Return the error for an attribute that has another name now.

    Example:
        >>> refuse_old_name("Keeper", "left_alone", "skipped")
        AttributeError('Keeper.left_alone is now Keeper.skipped')
    """
    return AttributeError(f"{owner}.{name} is now {new if '.' in new else f'{owner}.{new}'}")
