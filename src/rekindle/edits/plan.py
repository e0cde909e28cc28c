"""A plan: edits for given tensors, which can be looked at in full without writing anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from rekindle._renamed import refuse_old_name
from rekindle.edits.compute import Views, compute
from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.edits.record import Row, table_of
from rekindle.edits.surgery import Surgery


@dataclass(frozen=True, eq=False)
class PlannedLink:
    """What one link of a chain would do, on the tensors that the links before it leave."""

    content: Edits
    tensors: Mapping[str, Tensor] = field(repr=False)
    views: Views = field(default_factory=dict, repr=False)


@dataclass(eq=False)
class Plan:
    """What a method, or a chain of them, would do to a model; printing it computes the numbers, and writes nothing.

    Attributes:
        method: The settings, or several of them.
        links: What each link of the chain would do.
    """

    method: Any
    links: tuple[PlannedLink, ...]

    @cached_property
    def content(self) -> Edits:
        """Edits, skips, notices and surgery of all links."""
        return sum((link.content for link in self.links), Edits())

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What would be changed."""
        return self.content.edits

    @property
    def skips(self) -> tuple[Skip, ...]:
        """What would be left alone, with the reason."""
        return self.content.skips

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know."""
        return self.content.notices

    @property
    def surgery(self) -> tuple[Surgery, ...]:
        """What would be changed in the model's structure."""
        return self.content.surgery

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The edits in numbers, as they would come out now."""
        return tuple(
            row
            for link in self.links
            for change in compute(link.content.edits, link.tensors, views=link.views)
            for row in change.rows
        )

    def _edits_meta(self) -> bool:
        held = ((link.tensors, {edit.tensor for edit in link.content.edits}) for link in self.links)
        return any(tensors[name].is_meta for tensors, names in held for name in names if name in tensors)

    def __getattr__(self, name: str) -> Any:
        if name == "grafts":
            raise refuse_old_name("Plan", name, "surgery")
        raise AttributeError(f"'Plan' object has no attribute {name!r}")

    def __str__(self) -> str:
        """Return the table of what would happen; without numbers where the tensors have no values."""
        if self._edits_meta():
            told = (
                "no numbers: the tensors are on the meta device, and nothing can be carried out before they have values"
            )
            lines = [f"edit: {edit.tensor} ({edit.reason})" for edit in self.edits]
            rest = table_of(
                f"plan, nothing written: {self.method}", (), self.skips, (*self.notices, told), self.surgery
            )
            return "\n".join([rest, *lines])
        return table_of(f"plan, nothing written: {self.method}", self.rows, self.skips, self.notices, self.surgery)
