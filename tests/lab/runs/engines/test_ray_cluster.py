"""A real cluster of several nodes on this machine; about half a minute in all."""

import os
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from rekindle.lab.runs import shared_prefix
from rekindle.lab.runs.engines.ray_cluster import RayEngine, connected, train
from rekindle.lab.runs.execute import TRAIN_RUN, EngineError, run_sweep
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from tests.lab.runs.test_training_run import run_of, untimed
from tests.lab.runs.tiny import read_log

os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ROOT = Path(__file__).resolve().parents[4]
TINY = "tests.lab.runs.tiny:execute"
PLACE = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="ray is not installed: pip install 'rekindle[ray]'")
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False},
    )
    yield made
    made.shutdown()


def add_node(cluster, **resources):
    node = cluster.add_node(object_store_memory=80_000_000, **resources)
    cluster.wait_for_nodes()
    return node


def sweep(cluster, folder, runs, function=TINY, **settings):
    events = []
    place = {**PLACE, "TINY_BOARD": str(folder)}
    engine = RayEngine(address=cluster.address if cluster else "auto", environment=place, **settings)
    summary = run_sweep(Store(folder), runs, engine, function=function, listen=events.append)
    return summary, events


def test_what_runs_have_in_common_is_trained_once_on_one_machine(cluster, tmp_path):
    # the head has one core, so that no two of them begin at the same time
    runs = [run_of(methods=methods, sample_fraction=0.2) for methods in ("none", "fire", "shrink_perturb")]
    summary, _ = sweep(cluster, tmp_path, runs, TRAIN_RUN)
    assert len(summary.finished) == 3
    store = Store(tmp_path)
    assert len({store.rows(run.key)[0]["seconds"] for run in runs}) == 1
    assert len({store.rows(run.key)[-1]["accuracy"] for run in runs}) > 1


def test_a_node_killed_in_the_middle_loses_no_run_and_doubles_none(cluster, tmp_path):
    victim = add_node(cluster, num_cpus=2)
    (tmp_path / "victim").write_text(victim.node_id)
    runs = [Run(model="victim", seed=seed) for seed in range(12)]
    outcome = []
    driver = Thread(target=lambda: outcome.append(sweep(cluster, tmp_path, runs)[0]))
    driver.start()
    wait_for(lambda: len(list(tmp_path.glob("waits-*"))) == 2)
    cluster.remove_node(victim, allow_graceful=False)
    driver.join(120)
    (tmp_path / "go").touch()
    summary = outcome[0]
    killed = {path.name.removeprefix("waits-") for path in tmp_path.glob("waits-*")}
    assert sorted(summary.finished) == sorted(run.key for run in runs) and not summary.failed
    assert Counter(entry["key"] for entry in read_log(tmp_path, "end")) == {run.key: 1 for run in runs}
    starts = Counter(entry["key"] for entry in read_log(tmp_path, "start"))
    assert starts == {run.key: 2 if run.key in killed else 1 for run in runs} and len(killed) == 2
    assert len(Store(tmp_path).rows()) == 3 * 12
    again, events = sweep(cluster, tmp_path, runs)
    assert len(again.finished_before) == 12 and not events


def test_failures_deaths_and_retries(cluster, tmp_path):
    bad, dead, once, good = (Run(model=name) for name in ("raise", "die", "die_once", "mlp"))
    summary, _ = sweep(cluster, tmp_path, [bad, dead, once, good], retries=1)
    store = Store(tmp_path)
    assert sorted(summary.finished) == sorted([once.key, good.key])
    assert sorted(summary.failed) == sorted([bad.key, dead.key])
    assert "seed 0 went wrong" in store.failure(bad.key)
    assert "lost its worker or node 2 times" in store.failure(dead.key)
    starts = Counter(entry["key"] for entry in read_log(tmp_path, "start"))
    assert starts == {bad.key: 1, dead.key: 2, once.key: 2, good.key: 1}
    assert not list(tmp_path.glob("*/claim.*"))


def test_resources_that_no_node_has_are_told(cluster, tmp_path):
    with pytest.raises(EngineError, match="'GPU': 3"):
        sweep(cluster, tmp_path, [Run()], gpus=3)
    assert Store(tmp_path).keys() == []


def test_slots_are_counted_by_node(cluster):
    with connected(cluster.address) as ray:
        wait_for(
            lambda: len([node for node in ray.nodes() if node["Alive"]]) == 1
        )  # it takes Ray a while to see a death
        assert RayEngine(cpus=0.25).slots(ray) == 4
        assert RayEngine(cpus=0.6).slots(ray) == 1
        assert RayEngine(cpus=1, memory=1e6).slots(ray) == 0
        with connected("not used: connected already"):
            pass
        assert ray.is_initialized()
    assert not ray.is_initialized()


def test_a_run_of_another_driver_is_left_alone(cluster, tmp_path):
    run, store = Run(), Store(tmp_path)
    claim = store.claim(run)
    summary, _ = sweep(cluster, tmp_path, [run])
    assert summary.elsewhere == [run.key] and not read_log(tmp_path, "start")
    claim.release()


def test_ctrl_c_takes_back_what_runs(cluster, tmp_path):
    def stop(event):
        raise KeyboardInterrupt

    run, place = Run(model="hang"), {**PLACE, "TINY_BOARD": str(tmp_path)}
    engine = RayEngine(address=cluster.address, environment=place)
    assert run_sweep(Store(tmp_path), [run], engine, function=TINY, listen=stop).interrupted
    assert Store(tmp_path).state(run.key) == "open" and not list(tmp_path.glob("*/claim.*"))
    (tmp_path / "go").touch()
    assert sweep(cluster, tmp_path, [run])[0].finished == [run.key]


def wait_for(met):
    until = time.monotonic() + 90
    while not met():
        assert time.monotonic() < until, "waited for a minute and a half"
        time.sleep(0.05)


# --- without a cluster ---


def test_a_node_that_sees_the_store_uses_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("TINY_BOARD", str(tmp_path))
    run = Run()
    claim = Store(tmp_path).claim(run)
    here = (str(claim.path), claim.path.read_text())
    assert train(run.to_dict(), "tests.lab.runs.engines.test_ray_cluster:tell_folder", here)["rows"] == [
        {"folder": str(Store(tmp_path).checkpoint(run.key))}
    ]
    elsewhere = (str(claim.path), "another claim")
    [row] = train(run.to_dict(), "tests.lab.runs.engines.test_ray_cluster:tell_folder", elsewhere)["rows"]
    assert not row["folder"].startswith(str(tmp_path)) and not Path(row["folder"]).exists()


def test_a_node_that_sees_the_store_shares_beginnings(tmp_path):
    store, runs = Store(tmp_path), [run_of(), run_of(methods="fire")]
    claims = [store.claim(run) for run in shared_prefix.prepare(store, runs)]
    seen = [(str(claim.path), claim.path.read_text()) for claim in claims]
    first, second = (train(run.to_dict(), TRAIN_RUN, here)["rows"] for run, here in zip(runs, seen, strict=True))
    assert first[0]["seconds"] == second[0]["seconds"]  # the other's: it was not trained again
    alone = train(runs[1].to_dict(), TRAIN_RUN, (seen[1][0], "another claim"))["rows"]
    assert untimed(alone) == untimed(second) and alone[0]["seconds"] != second[0]["seconds"]


def tell_folder(run, folder, *, progress=None):
    return [{"folder": str(folder)}]


def test_ray_that_is_missing_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"rekindle\[ray\]"):
        sweep(None, tmp_path, [Run()])


def test_a_cluster_that_is_not_there_is_told(tmp_path, monkeypatch):
    def init(**_):
        raise ConnectionError("Could not find any running Ray instance.\nmore")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(EngineError, match="got: Could not find any running Ray instance.\nwhat to do: start one"):
        sweep(None, tmp_path, [Run()])


def test_nothing_to_run_needs_no_ray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert sweep(None, tmp_path, [])[0].finished == []
