"""Runs that cost nothing, for the tests of store and engines. What a run does stands in its field `methods`."""

import json
import os
import signal
import time
from pathlib import Path


def log(folder, run, what):
    """Append one line, which the system writes whole, to a log beside the runs' folders."""
    line = json.dumps({"what": what, "key": run.key, "seed": run.seed, "pid": os.getpid()}) + "\n"
    handle = os.open(board(folder) / "log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(handle, line.encode())
    os.close(handle)


def board(folder):
    """The folder of the store: its parent is where tests and runs leave notes for each other."""
    return Path(os.environ.get("TINY_BOARD") or Path(folder).parents[1])


def read_log(folder, what):
    path = Path(folder) / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [entry for entry in map(json.loads, lines) if entry["what"] == what]


def execute(run, folder, *, progress=None, bar=False):
    log(folder, run, "start")
    acts = {"raise": _raise, "die": _die, "die_once": _die_once, "hang": _hang, "victim": _wait_on_the_victim}
    acts.get(run.model, lambda run, folder: None)(run, folder)
    rows = [{"stage": 0, "epoch": epoch, "accuracy": run.seed + epoch / 10} for epoch in range(3)]
    for row in rows:
        if progress is not None:
            progress(row)
    log(folder, run, "end")
    return rows


def _raise(run, folder):
    raise RuntimeError(f"seed {run.seed} went wrong")


def _die(run, folder):
    os.kill(os.getpid(), signal.SIGKILL)


def _die_once(run, folder):
    note = Path(folder) / "died"
    if not note.exists():
        note.write_text("once")
        os.kill(os.getpid(), signal.SIGKILL)


def _hang(run, folder):
    while not (board(folder) / "go").exists():
        time.sleep(0.02)


def _wait_on_the_victim(run, folder):
    """Runs on the node that will be killed wait for that; the others end at once."""
    if _node() == (board(folder) / "victim").read_text():
        (board(folder) / f"waits-{run.key}").touch()
        _hang(run, folder)


def _node():
    import ray

    return ray.get_runtime_context().get_node_id()
