"""What FIRE's paper proves, on models that `fire_` itself has treated; for the mathematics see metrics/test_theorems.

Bounds are looked at where they are reached, so that a factor in SFE, in DfI or in the scale shows.
"""

import copy
import math

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.graph.modules import tensors_of
from rekindle.metrics import dfi as dfi_metric
from rekindle.metrics import sfe as sfe_metric
from rekindle.metrics.dormant import measure as measure_dormant
from rekindle.metrics.reading import MetricInputs
from tests.metrics.live import live


def mlp(sizes, seed, activation=nn.ReLU, bias=True):
    """A random network with singular values far apart, as after long training."""
    torch.manual_seed(seed)
    layers = []
    for i, o in zip(sizes, sizes[1:], strict=False):
        layer = nn.Linear(i, o, bias=bias)
        left, _, right = torch.linalg.svd(layer.weight.detach(), full_matrices=False)
        layer.weight.data = left @ torch.diag(torch.logspace(-1.5, 0.7, len(right))) @ right
        layers += [layer, activation()]
    return nn.Sequential(*layers[:-1]).double()


def cnn(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 3, 2), nn.Flatten(), nn.Linear(12, 5)).double()


MODELS = {
    "narrowing": (lambda seed: mlp((9, 7, 5, 3), seed), (9,)),
    "widening": (lambda seed: mlp((3, 5, 8), seed), (3,)),
    "square": (lambda seed: mlp((6, 6, 6), seed), (6,)),
    "convolutions": (cnn, (4, 5, 5)),
}


def matrices_of(model):
    """Every matrix by plain loops: a linear weight, or one for each kernel position, with the paper's scale."""
    for module in model:
        if isinstance(module, nn.Linear):
            yield module.weight.detach().clone(), math.sqrt(module.out_features / module.in_features)
        elif isinstance(module, nn.Conv2d):
            height, width = module.kernel_size
            scale = math.sqrt(module.out_channels / module.in_channels) / (height * width)
            for row in range(height):
                for column in range(width):
                    yield module.weight.detach()[:, :, row, column].clone(), scale


def treated(name, seed, **settings):
    make, shape = MODELS[name]
    before = make(seed)
    after = copy.deepcopy(before)
    record = rk.fire_(after, example=torch.randn(2, *shape).double(), **settings)
    return before, after, record


# --- 3.3: the nearest isometry ---


@pytest.mark.parametrize("solver", ["exact", "auto"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_deviation_from_isometry_is_zero_and_the_scale_is_the_papers(name, seed, solver):
    """Eq. 4: W'^T W' = I, times the scale of C: all singular values are sqrt(out/in), over the kernel positions."""
    _, after, record = treated(name, seed, solver=solver)
    near = 1e-9 if solver == "exact" else 0.011  # auto: a deviation of 1e-4 per row, so |s^2 - 1| <= sqrt(1e-4)
    for matrix, scale in matrices_of(after):
        assert torch.allclose(torch.linalg.svdvals(matrix) / scale, torch.ones(1).double(), atol=near)
    for row in record.rows:
        assert row.dfi_after <= (1e-12 if solver == "exact" else 1e-4 * row.count)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_the_squared_frobenius_error_is_the_least_possible_and_the_record_has_it(name, seed):
    """Eq. 5: |W - c Q|^2 = |W|^2 + c^2 k - 2 c (sum of the k singular values), below that of every other isometry."""
    before, after, record = treated(name, seed, solver="exact")
    least = 0.0
    for (old, scale), (new, _) in zip(matrices_of(before), matrices_of(after), strict=True):
        values = torch.linalg.svdvals(old)
        own = float(old.square().sum() + scale**2 * len(values) - 2 * scale * values.sum())
        assert own == pytest.approx(float((old - new).square().sum()), rel=1e-9)
        for turn in (1e-3, 0.1, 10.0):  # isometries nearby and anywhere
            other = torch.linalg.qr(_tall(new) + turn * torch.randn_like(_tall(new)))
            signs = other.R.diagonal().sign()
            rival = scale * (other.Q * signs)
            assert float((_tall(old) - rival).square().sum()) > own * (1 + 1e-9)
        least += own
    assert record.sfe == pytest.approx(least, rel=1e-9)
    example = torch.randn(2, *MODELS[name][1]).double()
    reference = {key: value.clone() for key, value in before.state_dict().items()}
    inputs = MetricInputs(tensors_of(after), rk.trace(after, example), reference=reference)
    assert sum(sfe_metric.measure(inputs).parts.values()) == pytest.approx(least, rel=1e-5)


def _tall(matrix):
    return matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T


@pytest.mark.parametrize("name", MODELS)
def test_the_deviation_that_the_record_and_the_metric_tell_is_that_of_the_singular_values(name):
    before, after, record = treated(name, 0, solver="exact")
    squares = [torch.linalg.svdvals(matrix).square() for matrix, _ in matrices_of(before)]
    scale_free = sum(float((s / s.mean() - 1).square().sum()) for s in squares)
    assert sum(row.dfi_before for row in record.rows) == pytest.approx(scale_free, rel=1e-9)
    for model in (before, after):
        inputs = MetricInputs(tensors_of(model), rk.trace(model, torch.randn(2, *MODELS[name][1]).double()))
        plain = [torch.linalg.svdvals(matrix).square() for matrix, _ in matrices_of(model)]
        total = sum(float((s - 1).square().sum()) for s in plain)
        parts = dfi_metric.measure(inputs).parts
        rows = {weight.name: weight.batch * min(weight.out, weight.in_) for weight in inputs.graph.weights}
        assert sum(parts[key] * rows[key] for key in parts) == pytest.approx(total, rel=1e-5)


# --- Theorem 1 ---


@pytest.mark.parametrize("seed", range(5))
def test_theorem_1_the_change_of_features_is_within_what_the_record_tells(seed):
    """|C - C'|_F <= 4 |Z| / m sqrt(L) S^(L-1) sqrt(SFE), with the SFE of the record; no biases, as in the paper."""
    before = mlp((7, 6, 5), seed, bias=False)
    after = copy.deepcopy(before)
    error = rk.fire_(after, example=torch.randn(2, 7).double(), solver="exact").sfe
    z = torch.randn(12, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    h, g = before(z).detach(), after(z).detach()
    largest = max(float(torch.linalg.svdvals(m)[0]) for model in (before, after) for m, _ in matrices_of(model))
    left = float((h @ h.T / h.norm() ** 2 - g @ g.T / g.norm() ** 2).norm())
    assert 0 < left <= 4 * float(z.norm() / min(h.norm(), g.norm())) * math.sqrt(2 * error) * largest


def test_theorem_1_at_its_smallest_step_distance_of_weights_is_distance_of_features():
    """The first line of the proof, reached: one linear layer on white inputs moves its features by sqrt(n SFE)."""
    before = mlp((6, 5), 0, nn.Identity, bias=False)
    after = copy.deepcopy(before)
    error = rk.fire_(after, example=torch.randn(2, 6).double(), solver="exact").sfe
    z = math.sqrt(20) * torch.linalg.qr(torch.randn(20, 6, dtype=torch.float64)).Q
    assert float((before(z) - after(z)).detach().square().sum()) == pytest.approx(20 * error, rel=1e-9)


# --- Theorem 2 ---


def curvature(model, z, loss):
    names = [name for name, _ in model.named_parameters()]
    sizes = [p.numel() for p in model.parameters()]
    shapes = [p.shape for p in model.parameters()]

    def objective(flat):
        parts = [part.reshape(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]
        return loss(torch.func.functional_call(model, dict(zip(names, parts, strict=True)), (z,)))

    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    return float(torch.linalg.matrix_norm(torch.func.hessian(objective)(flat), 2))


@pytest.mark.parametrize("layers", [2, 3])
def test_corollary_1_of_theorem_2_is_reached_by_a_treated_linear_network(layers):
    """White inputs, interpolation, DfI zero: |H|_2 <= beta L, with equality where nothing is gated."""
    model = mlp((4,) * (layers + 1), layers, nn.Identity, bias=False)
    rough = model_curvature(model)
    rk.fire_(model, example=torch.randn(2, 4).double(), solver="exact")
    assert model_curvature(model) == pytest.approx(layers, rel=1e-6) and rough > 2 * layers


def model_curvature(model):
    z = math.sqrt(9) * torch.linalg.qr(torch.randn(9, 4, generator=torch.Generator().manual_seed(2)).double()).Q
    target = model(z).detach()
    return curvature(model, z, lambda u: (u - target).square().sum() / 2 / len(z))


@pytest.mark.parametrize("seed", range(3))
def test_theorem_2_holds_with_the_deviation_that_the_metric_reads(seed):
    """A gated network, cross-entropy: |H|_2 <= beta sum prod nu + 2 gamma sum prod nu, nu = 1 + sqrt(DfI) = 1."""
    model = mlp((4, 4, 4), seed, bias=False)
    rk.fire_(model, example=torch.randn(2, 4).double(), solver="exact")
    z = math.sqrt(10) * torch.linalg.qr(torch.randn(10, 4).double()).Q
    labels = torch.arange(10) % 4
    found = curvature(model, z, lambda u: nn.functional.cross_entropy(u, labels))
    assert 0 < found <= 0.5 * 2 + 2 * math.sqrt(2) * 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stretched", [1.05, 1.5, 3.0])
def test_lemma_1_is_reached_where_one_direction_is_stretched(seed, stretched):
    """|W|_2^2 <= nu = 1 + sqrt(DfI): equal if all singular values but the largest are one, as FIRE leaves them."""
    model = mlp((6, 6), seed, bias=False)
    rk.fire_(model, example=torch.randn(2, 6).double(), solver="exact")
    left, values, right = torch.linalg.svd(model[0].weight.detach())
    model[0].weight.data = left @ torch.diag(torch.cat([values[:1] * stretched, values[1:]])) @ right
    inputs = MetricInputs(tensors_of(model), rk.trace(model, torch.randn(2, 6).double()))
    deviation = dfi_metric.measure(inputs).parts["0.weight"] * 6  # told per row
    largest = float(torch.linalg.svdvals(model[0].weight.detach())[0])
    assert largest**2 == pytest.approx(1 + math.sqrt(deviation), rel=1e-5)


# --- Theorems 3 and 4, Corollary 2 ---


@pytest.mark.parametrize("seed", range(3))
def test_theorem_3_features_of_a_treated_layer_have_full_rank(seed):
    """White inputs and DfI zero: srank_delta = the number of units, however few directions it had before."""
    model = mlp((8, 5), seed, bias=False)
    z = math.sqrt(30) * torch.linalg.qr(torch.randn(30, 8).double()).Q
    ranks = []
    for _ in range(2):
        values = torch.linalg.svdvals(model(z).detach())
        ranks.append(int((values.cumsum(0) / values.sum() < 0.99 - 1e-12).sum()) + 1)
        rk.fire_(model, example=torch.randn(2, 8).double(), solver="exact")
    assert ranks[0] < 5 and ranks[1] == 5


@pytest.mark.parametrize("seed", range(2))
def test_corollary_2_no_unit_of_a_treated_layer_is_dormant(seed):
    """Gaussian inputs: every score of a layer that does not widen is one, by Theorem 4 with DfI zero."""
    model = mlp((8, 5, 3), seed, bias=False).float()
    model[0].weight.data[:2] *= 1e-3  # two units that hardly move
    random = torch.Generator().manual_seed(1)
    data = [(torch.randn(2000, 8, generator=random), torch.zeros(2000).long()) for _ in range(2)]
    before = measure_dormant(live(model, data)).parts["0"]
    rk.fire_(model, example=data[0][0][:2], solver="exact")
    norms = model[0].weight.detach().norm(dim=1)
    assert before == pytest.approx(2 / 5) and measure_dormant(live(model, data)).parts["0"] == 0
    torch.testing.assert_close(norms / norms.mean(), torch.ones(5))
    active = model[:2](data[0][0]).detach().mean(0)
    assert (active / active.mean() - 1).abs().max() < 0.1
