"""Policies of reinforcement learning: torch.distributions in forward, samples and all."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

import rekindle as rk
from tests.graph.expected_notation import G, w, wb
from tests.graph.test_groups import assert_groups


class Head:
    """Not a module, and keeps its last distribution, as those of Stable-Baselines3 do."""

    def __init__(self, kind):
        self.kind, self.distribution = kind, None

    def build(self, parameters, log_std):
        if self.kind == "categorical":
            self.distribution = Categorical(logits=parameters)
        elif self.kind == "normal":
            self.distribution = Independent(Normal(parameters, log_std.exp(), validate_args=True), 1)
        else:
            inner = Independent(Normal(parameters, log_std.exp()), 1)
            self.distribution = TransformedDistribution(inner, [TanhTransform(cache_size=1)])
        return self.distribution


class ActorCritic(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.policy_net = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 8), nn.Tanh())
        self.value_net = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 10), nn.Tanh())
        self.action, self.value = nn.Linear(8, 2), nn.Linear(10, 1)
        self.log_std = nn.Parameter(torch.zeros(2))
        self.head = Head(kind)

    def forward(self, obs):
        distribution = self.head.build(self.action(self.policy_net(obs)), self.log_std)
        actions = distribution.rsample() if distribution.has_rsample else distribution.sample()
        return actions, self.value(self.value_net(obs)), distribution.log_prob(actions)


HIDDEN = [
    G(7, wb("policy_net.0"), w("policy_net.2")),
    G(8, wb("policy_net.2"), w("action")),
    G(9, wb("value_net.0"), w("value_net.2")),
    G(10, wb("value_net.2"), w("value")),
    G(1, wb("value"), kind="output"),
]


@pytest.mark.parametrize("kind", ["categorical", "normal", "squashed"])
@pytest.mark.parametrize("checked", [True, False])
def test_small_policies(kind, checked):
    torch.manual_seed(0)
    model = ActorCritic(kind)
    before = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(checked)
    try:
        graph = rk.trace(model, torch.rand(3, 4))
        assert torch.distributions.Distribution._validate_args is checked
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)
    outputs = [{s.tensor for s in g.incoming} for g in graph.groups if g.name == "action"]
    assert outputs == [wb("action") if kind == "categorical" else wb("action") | {"log_std"}]
    assert_groups(type("Rest", (), {"groups": [g for g in graph.groups if g.name != "action"]}), HIDDEN)
    assert model.head.distribution is None, "no tensors without values are left behind"
    assert len(graph.weights) == 6 and not graph.not_understood
    proved = graph.verify(model, torch.rand(3, 4)).proved
    assert set(proved) == {"policy_net.0", "policy_net.2", "value_net.0", "value_net.2"}


@pytest.mark.parametrize(
    ("algorithm", "environment"),
    [
        ("PPO", "CartPole-v1"),
        ("A2C", "CartPole-v1"),
        ("PPO", "Pendulum-v1"),
        ("A2C", "Pendulum-v1"),
        ("DQN", "CartPole-v1"),
        ("SAC", "Pendulum-v1"),
        ("TD3", "Pendulum-v1"),
    ],
)
def test_stable_baselines3(algorithm, environment):
    sb3 = pytest.importorskip("stable_baselines3")
    model = getattr(sb3, algorithm)("MlpPolicy", environment, device="cpu", policy_kwargs={"net_arch": [16, 8]})
    obs = torch.as_tensor(model.observation_space.sample()[None])
    action = torch.as_tensor(model.action_space.sample()).reshape(1, -1).float()
    parts = {name: getattr(model.policy, name, None) for name in ("q_net", "actor", "critic")}
    parts = {name: part for name, part in parts.items() if isinstance(part, nn.Module)}
    for name, part in {"policy": model.policy, **parts}.items():
        graph = rk.trace(part, (obs, action) if name == "critic" else obs)
        assert not graph.not_understood
        networks = 1 if name in ("actor", "q_net") or algorithm in ("DQN", "SAC", "TD3") and name == "policy" else 2
        assert sorted(g.size for g in graph.groups if g.kind == "hidden") == sorted([16, 8] * networks)
    model.predict(model.observation_space.sample())
