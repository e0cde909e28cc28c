"""A script as a user would write it, with every public name; checked by `mypy --strict` in test_stub.py."""

from typing import Any

import torch
from torch import Tensor, nn

import rekindle as rk

model: nn.Module = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
optimizer = torch.optim.Adam(model.parameters())
x: Tensor = torch.zeros(2, 8)
data: list[tuple[Tensor, Tensor]] = [(x, torch.zeros(2, dtype=torch.long))]


def treat() -> rk.ChangeRecord:
    graph: rk.UnitGraph = rk.trace(model, x)
    plan: rk.Plan = rk.plan("fire", model, graph=graph)
    print(plan)
    record = rk.apply_("fire+rescale", model, optimizer, graph=graph, frozen=True, seed=3)
    record.undo()
    record = rk.dash_(model, optimizer, example=x)
    record = rk.dirac_reset_(model, optimizer, example=x)
    record = rk.doubly_sparse_(model, optimizer, example=x)
    record = rk.dsd_(model, optimizer, example=x)
    record = rk.fire_(model, optimizer, example=x, solver="exact", skip=("head.*",))
    record = rk.full_reset_(model, optimizer, example=x)
    record = rk.head_reset_(model, optimizer, example=x)
    record = rk.layerwise_(model, optimizer, example=x)
    record = rk.mono_sparse_(model, optimizer, example=x)
    record = rk.mutually_frozen_(model, optimizer, example=x)
    record = rk.plasticity_injection_(model, optimizer, example=x, head="2")
    record = rk.rescale_(model, optimizer, example=x)
    record = rk.shrink_perturb_(model, optimizer, example=x, shrink=0.5, noise="init")
    record = rk.wels_(model, optimizer, example=x)
    record = rk.welsr_(model, optimizer, example=x)
    rk.recalibrate_(model, [x])
    rk.restore_(model, model.state_dict())
    return record


def settings() -> list[Any]:
    return [
        rk.Cbp(),
        rk.Dash(),
        rk.DiracReset(),
        rk.DoublySparse(),
        rk.Dsd(),
        rk.Fire(),
        rk.FullReset(),
        rk.HareTortoise(),
        rk.HeadReset(),
        rk.L2(),
        rk.L2Init(),
        rk.Layerwise(),
        rk.MonoSparse(),
        rk.Muon(),
        rk.MutuallyFrozen(),
        rk.Parseval(),
        rk.PlasticityInjection(),
        rk.Redo(),
        rk.Regrama(),
        rk.Rescale(),
        rk.SelectiveReinit(),
        rk.ShrinkPerturb(),
        rk.Snr(),
        rk.SoftRescale(),
        rk.Spectral(),
        rk.WeightClip(),
        rk.Wels(),
        rk.Welsr(),
        rk.Fire(iterations=5, solver="quintic"),
        rk.Redo(period=500),
    ]


def keep() -> None:
    keeper = rk.Keeper(model, optimizer, [rk.Redo(period=500), "soft_rescale"], example=x, copies=None)
    loss = model(x).sum() + keeper.penalty()
    loss.backward()
    keeper.step(skipped=False)
    for record in keeper.boundary(data):
        print(record.changed)
    keeper.rebind(rk.muon(model, x, lr=0.01))
    keeper.load_state_dict(keeper.state_dict())
    keeper.close()


def look() -> None:
    audit: rk.Audit = rk.audit(model, data, example=x)
    print(audit.findings, [card.key for card in rk.list_methods()], rk.list_metrics(), rk.method("fire").key)
    comparison: rk.Comparison = rk.compare(model, data, data, methods=["fire"], budget=2, seeds=2)
    print(comparison)
    rk.testing.check_method("fire", [rk.testing.ZOO["mlp"]])
    print(rk.lab, rk.kernels, rk.metrics, rk.statistics)
    try:
        rk.method("rado")
    except rk.errors.SettingsError as error:
        print(error.expected, error.got, error.fix)
    except rk.RekindleError:
        print(rk.NoEffectWarning, rk.KeeperWarning)
