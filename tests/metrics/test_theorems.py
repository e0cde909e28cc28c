"""The papers' theorems as checks on random networks: F = FIRE, S = Soft Weight Rescaling (stability: test_stability).

Matrices are written as in each paper: F multiplies from the right (W is in x out), S from the left.
"""

import math
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from rekindle.kernels.balance import layer_balance
from rekindle.metrics.dfi import dfi
from rekindle.metrics.lipschitz_bound import lipschitz_bound
from rekindle.metrics.sfe import sfe

SEEDS = st.integers(0, 10_000)
ACTIVATIONS = [torch.relu, torch.tanh, lambda x: functional.leaky_relu(x, 0.2), lambda x: x]
torch_double = {"dtype": torch.float64}


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), **torch_double)


def spectral(matrix):
    return float(torch.linalg.matrix_norm(matrix, 2))


def paper_dfi(weight):
    """As printed: |W^T W - I|^2 on the side of the outputs, whichever is smaller."""
    return float((weight.T @ weight - torch.eye(weight.shape[1], **torch_double)).square().sum())


def near_isometry(seed, rows, columns, size):
    """An isometry plus noise, so that sqrt(DfI) is below one for a small size."""
    q, _ = torch.linalg.qr(drawn(seed, rows, columns))
    return q + size * drawn(seed + 1, rows, columns) / math.sqrt(rows * columns)


def whitened(seed, samples, inputs):
    """Inputs with Z^T Z / n = I exactly."""
    return math.sqrt(samples) * torch.linalg.qr(drawn(seed, samples, inputs))[0]


# --- F Theorem 1 ---


@settings(max_examples=40)
@given(seed=SEEDS, noise=st.sampled_from([0.01, 0.1, 1.0]), activation=st.sampled_from(ACTIVATIONS))
def test_f1_sfe_bounds_the_feature_covariance(seed, noise, activation):
    """|C - C'|_F^2 <= 16 |Z|^2 / m^2 (prod B)^2 (sum 1/B_j^2) SFE, and its simpler form, after every layer."""
    sizes = (4, 6, 5, 3)
    one = [drawn(seed + i, a, b) / 2 for i, (a, b) in enumerate(pairwise(sizes))]
    two = [w + noise * drawn(seed + 50 + i, *w.shape) for i, w in enumerate(one)]
    z = drawn(seed + 99, 7, 4)
    h, g = z, z
    for layer in range(3):
        h, g = activation(h @ one[layer]), activation(g @ two[layer])
        m = float(min(h.norm(), g.norm()))
        assume(m > 0)
        pairs = list(zip(one[: layer + 1], two[: layer + 1], strict=True))
        bounds = [max(spectral(a), spectral(b)) for a, b in pairs]
        error = sum(sfe(a, b) for a, b in pairs)
        left = float((h @ h.T / h.norm() ** 2 - g @ g.T / g.norm() ** 2).norm())
        ratio = float(z.norm()) / m
        full = 16 * ratio**2 * math.prod(bounds) ** 2 * sum(b**-2 for b in bounds) * error
        simple = 4 * ratio * math.sqrt(layer + 1) * max(bounds) ** layer * math.sqrt(error)
        assert left**2 <= full * (1 + 1e-9) and left <= simple * (1 + 1e-9)


# --- F Theorem 2 ---


def largest_curvature(weights, z, loss):
    shapes = [w.shape for w in weights]

    def objective(flat):
        parts, h = flat.split([s.numel() for s in shapes]), z
        for number, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
            h = h @ part.reshape(shape)
            h = h.relu() if number < len(shapes) - 1 else h
        return loss(h)

    flat = torch.cat([w.flatten() for w in weights])
    return spectral(torch.func.hessian(objective)(flat))


@pytest.mark.parametrize("kind", ["squared error", "cross-entropy"])
@pytest.mark.parametrize("deviation", [paper_dfi, lambda w: float(dfi(w))], ids=["printed", "smaller side"])
@pytest.mark.parametrize("seed", range(6))
def test_f2_dfi_bounds_the_hessian(seed, deviation, kind):
    """|H|_2 <= beta sum_k prod_{j != k} nu_j + 2 gamma sum_{k<l} prod_{j not in k,l} nu_j, nu = 1 + sqrt(DfI)."""
    sizes = (4, 5, 3, 2) if seed % 2 else (3, 3, 3)
    scale = (0.3, 1.0, 2.0)[seed % 3]
    weights = [scale * drawn(seed + i, a, b) / math.sqrt(a) for i, (a, b) in enumerate(pairwise(sizes))]
    z = whitened(seed + 9, 12, sizes[0])
    target = drawn(seed + 20, 12, sizes[-1])
    if kind == "squared error":
        h = z
        for number, weight in enumerate(weights):
            h = (h @ weight).relu() if number < len(weights) - 1 else h @ weight
        beta, gamma = 1.0, float((h - target).norm(dim=1).max())
        curvature = largest_curvature(weights, z, lambda u: (u - target).square().sum() / 2 / len(z))
    else:
        beta, gamma = 0.5, math.sqrt(2)  # of softmax cross-entropy
        curvature = largest_curvature(weights, z, lambda u: functional.cross_entropy(u, target.argmax(1)))
    nu = [1 + math.sqrt(deviation(weight)) for weight in weights]
    layers = range(len(nu))
    one_out = sum(math.prod(nu[j] for j in layers if j != k) for k in layers)
    two_out = sum(math.prod(nu[j] for j in layers if j not in pair) for pair in combinations(layers, 2))
    assert 0 < curvature <= beta * one_out + 2 * gamma * two_out


# --- F Theorem 3 ---


def srank(values, delta):
    """min k with the first k of the nonzero singular values summing to 1 - delta of all."""
    values = values[values > 1e-9 * values[0]]
    shares = values.cumsum(0) / values.sum()
    return int((shares < 1 - delta - 1e-12).sum()) + 1


@settings(max_examples=60)
@given(
    seed=SEEDS,
    size=st.sampled_from([0.0, 0.1, 0.3]),
    delta=st.sampled_from([0.01, 0.1, 0.3]),
    rank=st.sampled_from([2, 4, 6]),
)
def test_f3_dfi_bounds_the_rank_of_features(seed, size, delta, rank):
    """srank_delta(ZW) >= ceil((1-delta) d / (delta sqrt((1+e)/(1-e)) sqrt(eta_1/eta_d) + 1 - delta)), any inputs."""
    w = near_isometry(seed, 6, 4, size)
    epsilon = math.sqrt(paper_dfi(w))
    assume(epsilon < 1)
    z = drawn(seed + 5, 20, rank) @ drawn(seed + 6, rank, 6)  # also inputs of lower rank
    left, _, right = torch.linalg.svd(w, full_matrices=False)
    q = left @ right
    eta = torch.linalg.eigvalsh(q.T @ (z.T @ z / 20) @ q).flip(0)
    eta = eta[eta > 1e-9 * eta[0]]
    spread = math.sqrt((1 + epsilon) / (1 - epsilon)) * math.sqrt(float(eta[0] / eta[-1]))
    bound = math.ceil((1 - delta) * len(eta) / (delta * spread + 1 - delta) - 1e-9)
    assert srank(torch.linalg.svdvals(z @ w), delta) >= bound


@pytest.mark.parametrize("seed", range(20))
def test_f3_white_inputs(seed):
    """With Z^T Z / n = I the same without eta, d = b; and at DfI = 0 the bound is reached."""
    delta = 0.1
    for size in (0.0, 0.05, 0.2):
        w = near_isometry(seed, 8, 5, size)
        epsilon = math.sqrt(paper_dfi(w))
        assert epsilon < 1
        values = torch.linalg.svdvals(whitened(seed, 30, 8) @ w)
        bound = math.ceil((1 - delta) * 5 / (delta * math.sqrt((1 + epsilon) / (1 - epsilon)) + 1 - delta) - 1e-9)
        assert srank(values, delta) >= bound and (size > 0 or srank(values, delta) == bound == 5)


# --- F Theorem 4 and Corollary 2 ---


def scores(weight):
    """Activity scores under isotropic Gaussian inputs: E|sigma(<z, w>)| = c |w|, whatever homogeneous sigma."""
    norms = weight.norm(dim=0)
    return norms / norms.mean()


@pytest.mark.parametrize("activation", [torch.relu, lambda x: functional.leaky_relu(x, 0.3)], ids=["relu", "leaky"])
def test_f4_scores_are_ratios_of_norms(activation):
    """First step of the proof: s_j = |w_j| / mean |w_k| for Gaussian inputs."""
    w = drawn(0, 5, 4)
    means = activation(drawn(1, 200_000, 5) @ w).abs().mean(0)
    assert torch.allclose(means / means.mean(), scores(w), rtol=0.02)


@settings(max_examples=60)
@given(seed=SEEDS, size=st.sampled_from([0.0, 0.05, 0.2, 0.4]))
def test_f4_dfi_bounds_the_activity_scores(seed, size):
    """sqrt((1-e)/(1+e)) <= s_j <= sqrt((1+e)/(1-e)), e = sqrt(DfI) < 1."""
    w = near_isometry(seed, 7, 4, size)
    epsilon = math.sqrt(float(dfi(w)))
    assume(epsilon < 1)
    bound = math.sqrt((1 + epsilon) / (1 - epsilon))
    assert 1 / bound - 1e-12 <= float(scores(w).min()) and float(scores(w).max()) <= bound + 1e-12


def test_f4_needs_the_side_of_the_outputs():
    """Where a layer widens, DfI on the smaller side can be zero with a dead unit; as printed it is at least one."""
    widening = torch.eye(3, 5, **torch_double)  # three inputs, five units, two of them dead
    assert float(dfi(widening)) == 0 and float(scores(widening).min()) == 0
    assert paper_dfi(widening) == 2


@settings(max_examples=60)
@given(seed=SEEDS, tau=st.floats(0.01, 0.9))
def test_f_corollary_2_no_dormant_units(seed, tau):
    """DfI <= ((1 - tau^2) / (1 + tau^2))^2 implies s_j >= tau; tried right at the edge."""
    edge = ((1 - tau**2) / (1 + tau**2)) ** 2
    low, high = 0.0, 20.0
    for _ in range(60):  # the size of the noise at which DfI reaches the edge
        middle = (low + high) / 2
        low, high = (middle, high) if paper_dfi(near_isometry(seed, 6, 4, middle)) <= edge else (low, middle)
    w = near_isometry(seed, 6, 4, low)
    assert paper_dfi(w) <= edge and float(scores(w).min()) >= tau - 1e-9


def test_f_corollary_2_at_the_threshold_of_redo():
    """tau = 0.025 gives 0.9975, the number printed."""
    assert ((1 - 0.025**2) / (1 + 0.025**2)) ** 2 == pytest.approx(0.9975, abs=5e-5)


# --- S Theorem 1 ---


def scaled(model, factors):
    """W_l <- c_l W_l, b_l <- (c_1 ... c_l) b_l."""
    layers = [layer for layer in model if hasattr(layer, "weight")]
    running = 1.0
    for layer, factor in zip(layers, factors, strict=True):
        running *= factor
        layer.weight.data *= factor
        layer.bias.data *= running


@pytest.mark.parametrize("seed", range(10))
def test_s1_infinitely_many_proportional_networks(seed):
    """For any C > 0 and any c with product C, the rescaled network is C f: affine, convolution, pooling, leaky ReLU."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    parts = [nn.Conv2d(2, 4, 3), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(4, 3, 2), nn.ReLU(), nn.AvgPool2d(2)]
    model = nn.Sequential(*parts, nn.Flatten(), nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    x = drawn(seed, 6, 2, 8, 8)
    constant = float(torch.rand((), generator=generator)) * 4 + 0.1
    for _ in range(3):
        factors = (torch.rand(4, generator=generator, **torch_double) * 3 + 0.1).tolist()
        factors[3] = constant / math.prod(factors[:3])
        before = model(x).detach()
        scaled(model, factors)
        assert torch.allclose(model(x), constant * before, rtol=1e-9, atol=1e-12)


# --- S Theorem 2 and Corollary 2.1 ---


def soft_rescaled(weight, initial_norm, strength):
    """S 3.3: W <- (lambda n + (1 - lambda) |W|) / |W| W."""
    return weight * (strength * initial_norm + (1 - strength) * weight.norm()) / weight.norm()


def norms_under_updates(seed, start, strength, bound, *, worst, steps=150):
    """Norms after each update that changes |W|^2 by at most `bound` (upwards if worst), soft rescaling in between."""
    generator = torch.Generator().manual_seed(seed)
    weight, norms = start, []
    for _ in range(steps):
        change = bound if worst else bound * (2 * float(torch.rand((), generator=generator)) - 1)
        square = max(float(weight.square().sum()) + change, 1e-6)
        direction = torch.randn(3, 2, generator=generator, **torch_double)
        weight = direction / direction.norm() * math.sqrt(square)
        norms.append(float(weight.norm()))
        weight = soft_rescaled(weight, start.norm(), strength)
    return norms


@settings(max_examples=25)
@given(seed=SEEDS, strength=st.sampled_from([0.05, 0.2, 1.0]), bound=st.sampled_from([0.1, 1.0, 10.0]))
def test_s2_soft_rescaling_bounds_the_norm(seed, strength, bound):
    """If an update changes |W|^2 by at most B, then |W_t| <= sqrt(B) / lambda + |W_0| for all t; worst updates too."""
    start = drawn(seed, 3, 2)
    limit = math.sqrt(bound) / strength + float(start.norm())
    for worst in (True, False):
        assert max(norms_under_updates(seed, start, strength, bound, worst=worst)) <= limit * (1 + 1e-12)


def test_s2_without_rescaling_the_same_updates_pass_the_bound():
    """The remark after the proof: the norm then grows as sqrt(t), beyond the bound of any lambda."""
    start = drawn(0, 3, 2)
    free = norms_under_updates(0, start, 0.0, 1.0, worst=True, steps=1600)
    assert free[1599] / free[399] == pytest.approx(2, rel=0.02)
    assert free[-1] > 1.0 / 0.05 + float(start.norm()) > max(norms_under_updates(0, start, 0.05, 1.0, worst=True))


@pytest.mark.parametrize("seed", range(3))
def test_s_corollary_2_1_a_network_under_soft_rescaling_is_lipschitz(seed):
    """At every step slopes <= prod |W|_2 <= prod |W|_F <= prod (sqrt(B_l) / lambda + |W_0|), B_l as observed."""
    strength, rate = 0.2, 0.3
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    layers = [model[0], model[2], model[4]]
    initial = [layer.weight.detach().norm() for layer in layers]
    x, target = drawn(seed, 16, 4), 5 * drawn(seed + 1, 16, 2)
    change, history = [0.0] * 3, []
    for _ in range(40):
        squares = [float(layer.weight.detach().square().sum()) for layer in layers]
        gradients = torch.autograd.grad(functional.mse_loss(model(x), target), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.data -= rate * gradient
        for number, layer in enumerate(layers):
            moved = abs(float(layer.weight.detach().square().sum()) - squares[number])
            change[number] = max(change[number], moved)
            layer.weight.data = soft_rescaled(layer.weight.data, initial[number], strength)
        one, two = drawn(seed + 7, 50, 4), drawn(seed + 8, 50, 4)
        slope = ((model(one) - model(two)).norm(dim=1) / (one - two).norm(dim=1)).max().item()
        values = [torch.linalg.svdvals(layer.weight.detach())[None] for layer in layers]
        history.append((slope, math.prod(map(lipschitz_bound, values)), math.prod(float(v.norm()) for v in values)))
    limit = math.prod(math.sqrt(b) / strength + float(n) for b, n in zip(change, initial, strict=True))
    for slope, spectral_product, frobenius_product in history:
        assert slope <= spectral_product <= frobenius_product <= limit


# --- S Theorem 3 ---


@settings(max_examples=100)
@given(
    norms=st.tuples(*[st.floats(0.01, 100)] * 4),
    strength=st.floats(0, 1),
)
def test_s3_soft_rescaling_improves_the_balance(norms, strength):
    """b_t of any two layers is not larger after a step of soft rescaling, and zero with lambda = 1."""
    before, now = norms[:2], norms[2:]
    after = tuple(strength * n0 + (1 - strength) * n for n0, n in zip(before, now, strict=True))
    assert layer_balance(before, after) <= layer_balance(before, now) * (1 + 1e-9) + 1e-9
    assert layer_balance(before, before) == 0
