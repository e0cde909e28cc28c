"""All experiments, paper by paper."""

from __future__ import annotations

from papers.experiment import Experiment
from papers.fire import experiments as fire
from papers.frozen import experiments as frozen
from papers.layerwise import experiments as layerwise
from papers.other_papers import experiments as other_papers
from papers.soft_rescaling import experiments as soft_rescaling
from rekindle.errors import SettingsError

PAPERS = (layerwise, soft_rescaling, frozen, fire, other_papers)
EXPERIMENTS: dict[str, Experiment] = {one.name: one for paper in PAPERS for one in paper.EXPERIMENTS}
# Old name -> name of now.
RENAMED = {
    "elsewhere-permuted-cbp": "other-permuted-cbp",
    "elsewhere-permuted-l2-init": "other-permuted-l2-init",
}


def experiment(name: str) -> Experiment:
    """Return an experiment by its name.

    Raises:
        SettingsError: There is none, or it has another name now.

    Example:
        >>> experiment("layerwise-table-1").where
        'Table 1'
    """
    if name in RENAMED:
        raise SettingsError(
            expected=f"the experiment's name of now, {RENAMED[name]}",
            got=f"its old name, {name!r}",
            fix=f"rekindle reproduce {RENAMED[name]}",
        )
    if name not in EXPERIMENTS:
        raise SettingsError(
            expected=f"an experiment: {', '.join(EXPERIMENTS)}", got=repr(name), fix="see `rekindle reproduce --list`"
        )
    return EXPERIMENTS[name]
