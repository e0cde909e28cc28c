"""What a line may do depends on where it stands: the one table of rooms.

`tests/test_rooms.py` holds the code to it, and the table in CONTRIBUTING.md is generated from it:
`python tests/rooms.py` writes it anew.
"""

from dataclasses import dataclass
from pathlib import Path

CONTRIBUTING = Path(__file__).resolve().parent.parent / "CONTRIBUTING.md"
BEGIN, END = "<!-- rooms -->\n", "<!-- end of rooms -->\n"


@dataclass(frozen=True)
class Room:
    """A package of ours, or a part of one.

    Args:
        imports: Rooms that it may import, at the top of a file or inside a function.
        may: What its lines may do.
        may_not: What they may not.
    """

    imports: frozenset[str]
    may: str
    may_not: str = ""


def _room(imports: str, may: str, may_not: str = "") -> Room:
    return Room(frozenset(imports.split()), may, may_not)


GROUND = "errors _renamed _lazy seeds text files"
TREATING = f"{GROUND} kernels graph observe edits methods"
PLAIN_TOOLS = f"{TREATING} keeper training metrics statistics pages checkpoint"
LIBRARY = f"{PLAIN_TOOLS} diagnosis comparison"
LAB = "lab lab/models lab/data lab/protocols lab/runs lab/report"

ROOMS = {
    "errors": _room("", "three-part errors"),
    "_renamed": _room("", "say what old names are now"),
    "_lazy": _room("", "load names when they are asked for"),
    "seeds": _room("", "draws seeded by name"),
    "text": _room("", "tables as plain text"),
    "files": _room("", "files written whole or not at all"),
    "kernels": _room("", "compute on given tensors, take a generator", "see modules, names, files"),
    "graph": _room("errors seeds text kernels", "know module and operation types", "change values, know a method"),
    "observe": _room("errors seeds kernels graph", "hook, run forward and backward, clean up", "write parameters"),
    "edits": _room(
        "errors _renamed text kernels graph observe",
        "write parameters, buffers, structure and optimizer state; nobody else does",
        "know a method",
    ),
    "methods": _room("errors _lazy seeds kernels graph observe edits", "card, settings, spec strings, registry, apply"),
    **{
        f"methods/{kind}": _room(
            "errors seeds kernels graph observe edits methods",
            "read graph, evidence, own state; return edits, a penalty, or chosen units",
            "assign to a parameter, touch an optimizer",
        )
        for kind in ("one_shot", "per_step", "recyclers", "optimizers")
    },
    "keeper": _room(TREATING, "run methods beside somebody's training loop"),
    "training": _room(f"{TREATING} keeper", "call backward and the optimizer's step", "know a method by name"),
    "metrics": _room(f"{TREATING} training", "read graph and evidence, return readings", "write, print"),
    "statistics": _room("errors", "compute from numbers", "read files, draw"),
    "pages": _room("errors files metrics", "turn results into a page", "compute a result"),
    "checkpoint": _room("errors kernels graph edits methods", "the same edits on files"),
    "diagnosis": _room(
        f"{TREATING} metrics checkpoint pages", "turn readings into findings and advice", "write parameters, print"
    ),
    "comparison": _room(
        f"{TREATING} keeper training statistics",
        "fork a model into treatments and judge them",
        "know spec, sweep or store",
    ),
    "lab/models": _room("errors methods kernels", "define the papers' networks"),
    "lab/data": _room("errors seeds files methods training", "load tensors; write data sets"),
    "lab/protocols": _room("errors seeds methods training lab/data", "yield stages", "know a method by name"),
    "lab/runs": _room(
        f"{LIBRARY} lab/models lab/data lab/protocols", "read and write result files; nobody else does", "draw"
    ),
    "lab/report": _room(
        "errors files methods metrics statistics pages lab/runs", "turn rows into tables, a page", "train"
    ),
    "lab": _room("_lazy", "name its parts"),
    "testing": _room(f"{LIBRARY} lab/models ROOT", "check methods of anyone on a zoo of small models"),
    "integrations": _room(f"{LIBRARY} ROOT", "import optional packages", "be imported"),
    "cli": _room(
        f"{LIBRARY} lab lab/models lab/data lab/protocols lab/runs lab/report testing ROOT", "print; one file a verb"
    ),
    "__main__": _room("cli", "start the program"),
    "_stub": _room("methods ROOT", "write the stub that editors read"),
}


def table() -> str:
    """Return the rooms as a Markdown table."""
    lines = ["| room | may import of ours | may | may not |", "|---|---|---|---|"]
    for name, room in ROOMS.items():
        if name in ("errors", "_renamed", "_lazy", "seeds", "text", "files", "lab", "__main__", "_stub"):
            continue
        imports = ", ".join(_shortened(room.imports)) or "nothing"
        lines.append(f"| {name} | {imports} | {room.may} | {room.may_not} |")
    return "\n".join(lines) + "\n"


def _shortened(imports: frozenset[str]) -> list[str]:
    """Return the rooms in the order of the table, without the four files that most may use."""
    return [name for name in ROOMS if name in imports and name not in GROUND.split()]


def with_table(text: str) -> str:
    """Return CONTRIBUTING with the table of now."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    CONTRIBUTING.write_text(with_table(CONTRIBUTING.read_text("utf-8")), "utf-8")
