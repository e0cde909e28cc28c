"""Write down everything that can be observed of one checkout: `python observe.py CHECKOUT/src OUT [--group methods]`.

OUT is a folder; each group writes `<group>.json` there, a flat mapping from keys to values. The same script runs on the
code before and after a move: what is private is looked up through `renames.py`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

# Group -> module with a function `observe(seen, room)`; slow ones first.
GROUPS = {
    "metrics": "observe_metrics",
    "keepers": "observe_keepers",
    "corners": "observe_corners",
    "sweeps": "observe_sweeps",
    "settings": "observe_settings",
    "methods": "observe_methods",
    "reproduce": "observe_reproduce",
    "store": "observe_store",
    "operations": "observe_operations",
    "runs": "observe_runs",
    "graphs": "observe_graphs",
    "comparisons": "observe_comparisons",
    "kernels": "observe_kernels",
    "seeds": "observe_seeds",
    "texts": "observe_texts",
}
STEADY = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_CBWR": "COMPATIBLE",  # the same bits wherever in memory a matrix happens to lie
    "PYTHONHASHSEED": "0",
    "COLUMNS": "1000",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "REKINDLE_DATA": "no-data",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def main() -> None:
    """Observe the groups that were asked for, all by default."""
    given = _arguments()
    source, out = given.source.resolve(), given.out.resolve()
    if any(os.environ.get(name) != value for name, value in STEADY.items()):  # too late for this process
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **STEADY})
    out.mkdir(parents=True, exist_ok=True)
    for group in given.group or GROUPS:
        values = observe(group, source, given.old_names, given.store)
        (out / f"{group}.json").write_text(json.dumps(values, indent=0), encoding="utf-8")
        print(f"{group}: {len(values)} observations")


def observe(group: str, source: Path, old_names: bool = False, store: Path | None = None) -> dict[str, object]:
    """Return the observations of one group."""
    _import_from(source)
    import lookup
    import torch
    from recording import Seen

    torch.set_num_threads(1)
    lookup.old_names_only = old_names
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder).resolve()
        seen = Seen({source: "SOURCE", source.parent: "CHECKOUT", room: "ROOM"})
        module = importlib.import_module(GROUPS[group])
        module.observe(seen, room, **({"store": store} if group == "store" else {}))
        return seen.values


def _import_from(source: Path) -> None:
    """Make sure that rekindle is the one of this checkout, here and in processes that are started from here."""
    sys.path[:0] = [str(source), str(source.parent)]  # beside `src` there may be packages that are not installed
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    import rekindle

    assert Path(rekindle.__file__).is_relative_to(source), f"rekindle comes from {rekindle.__file__}, not from {source}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the folder src of a checkout")
    parser.add_argument("out", type=Path, help="folder that the observations are written to")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group; may be repeated")
    parser.add_argument("--old-names", action="store_true", help="the code is that before the move")
    parser.add_argument("--store", type=Path, help="a store for the group `store`; made if it is not there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
