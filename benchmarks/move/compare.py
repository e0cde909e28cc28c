"""Prove that a move changed no behavior: observe the code before and after it, and compare key by key, bit by bit.

    python benchmarks/move/compare.py                         # 6632de4 against this checkout
    python benchmarks/move/compare.py --only methods --only graphs
    python benchmarks/move/compare.py --before 6632de4 --after /some/checkout --keep runs/move

Texts and keys of the code before are sent through `renames.py`. A value is equal if it stayed as it was, or if it is
what the renames make of it. The exit code is 1 on any difference.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from observe import GROUPS
from translate import Translation

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BEFORE = "6632de4"
NOTHING = "(nothing)"
BROKEN = "(the observer itself)"  # the key of what broke it
SHOWN = 20  # differing keys
LONG = 300  # characters of a value that are shown, around the first difference


@dataclass
class Found:
    """What came of one group.

    Attributes:
        same: Keys whose values are as they were.
        renamed: Keys that are equal by the renames.
        different: Keys with the values before and after.
    """

    same: int = 0
    renamed: int = 0
    different: list[tuple[str, Any, Any]] = field(default_factory=list)


def main() -> int:
    """Compare all groups, two at once, and print what came of each."""
    given, begun = _arguments(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, _source(given.before, Path(folder)) as before:
        kept = given.keep.resolve() if given.keep else Path(folder) / "observations"
        jobs = [(group, before, given.after.resolve() / "src", kept) for group in given.only or GROUPS]
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda job: _told(*job), jobs))
    different = [(group, *one) for (group, *_), found in zip(jobs, results, strict=True) for one in found.different]
    for group, key, old, new in different[:SHOWN]:
        _show(group, key, old, new)
    same, renamed = sum(found.same for found in results), sum(found.renamed for found in results)
    print(f"\n{same} as they were, {renamed} equal by the renames, {len(different)} different", end="")
    print(f" ({time.monotonic() - begun:.0f} s)")
    return 1 if different else 0


def _told(group: str, before: Path, after: Path, kept: Path) -> Found:
    """Observe a group on both sides, compare, and print the counts."""
    begun = time.monotonic()
    past = kept / f"before-{_digest(before)}"
    store = ("--store", past / "store") if group == "store" else ()
    old = _observed(group, before, past, "--old-names", *store, again=False)
    new = _observed(group, after, kept / "after", *store)
    found = compared(old, new)
    counts = f"{found.same} as they were, {found.renamed} by the renames, {len(found.different)} different"
    print(f"{group}: {counts} ({time.monotonic() - begun:.0f} s)", flush=True)
    return found


def _observed(group: str, source: Path, out: Path, *options: str | Path, again: bool = True) -> dict[str, Any]:
    """Observe a group in a process of its own; what breaks it counts as a difference."""
    path = out / f"{group}.json"
    if again or not path.exists():
        path.unlink(missing_ok=True)
        argv = [sys.executable, HERE / "observe.py", source, out, "--group", group, *options]
        ended = subprocess.run(argv, capture_output=True, text=True, cwd=HERE)
        if not path.exists():
            return {BROKEN: f"exit code {ended.returncode}: {ended.stderr[-2000:]}"}
    observations: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return observations


def compared(before: dict[str, Any], after: dict[str, Any]) -> Found:
    """Compare two sides key by key."""
    if BROKEN in (before | after):
        return Found(different=[(BROKEN, before.get(BROKEN, "(works)"), after.get(BROKEN, "(works)"))])
    found, translation = Found(), Translation()
    for key, old, new in _pairs(before, after, translation):
        if type(new) is type(old) and new == old:
            found.same += 1
        elif isinstance(old, str) and isinstance(new, str) and translation.equal(old, new):
            found.renamed += 1
        else:
            found.different.append((key, old, new))
    return found


def _pairs(before: dict[str, Any], after: dict[str, Any], translation: Translation) -> Iterator[tuple[str, Any, Any]]:
    """Yield every key of either side with both values: first under one name, then under one name after the renames."""
    yield from ((key, before[key], after[key]) for key in before if key in after)
    rest = {translation.of(key): key for key in after if key not in before}
    for key in [key for key in before if key not in after]:
        other = rest.pop(translation.of(key), None)
        yield key, before[key], NOTHING if other is None else after[other]
    yield from ((key, NOTHING, after[key]) for key in rest.values())


def _show(group: str, key: str, old: Any, new: Any) -> None:
    one, two = (value if isinstance(value, str) else json.dumps(value) for value in (old, new))
    start = max(0, len(os.path.commonprefix([one, two])) - LONG // 3)
    print(f"\n{group}: {key}")
    for side, text in (("before", one), ("after", two)):
        cut = ("..." if start else "") + text[start : start + LONG] + ("..." if len(text) > start + LONG else "")
        print(f"  {side + ':':8}{cut}")


@contextlib.contextmanager
def _source(before: str, folder: Path) -> Iterator[Path]:
    """Give the folder `src` of a checkout, or of a revision, whose files are laid out in a temporary folder."""
    if (Path(before) / "src").is_dir():
        yield Path(before).resolve() / "src"
        return
    tree = folder / "before"
    tree.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", before], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
    yield tree / "src"


def _digest(source: Path) -> str:
    """Return what decides the observations of the code before: that code, and the code that observes."""
    files = sorted([*source.rglob("*.py"), *(path for path in HERE.glob("*.py") if path.name not in UNCONCERNED)])
    content = hashlib.sha256()
    for path in files:
        content.update(path.name.encode() + path.read_bytes())
    return content.hexdigest()[:16]


UNCONCERNED = ("renames.py", "compare.py", "translate.py")  # none of them changes what is observed before the move


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE, help=f"a revision or the path of a checkout; {BEFORE} if left out")
    parser.add_argument("--after", type=Path, default=ROOT, help="path of a checkout; this one if left out")
    parser.add_argument("--only", action="append", choices=GROUPS, help="only this group; may be repeated")
    parser.add_argument("--keep", type=Path, help="keep observations here; those of the code before are made once")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
