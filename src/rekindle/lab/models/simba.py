"""SimBa: residual feed-forward networks for continuous control (Lee et al. 2024)."""

import torch
from torch import Tensor, nn


class RunningNorm(nn.Module):
    """Subtracts the mean and divides by the deviation of all observations it was told of by `update`."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def update(self, observations: Tensor) -> None:
        """Take more observations, `[n, size]`, into mean and variance (Chan's formula)."""
        count, total = len(observations), self.count + len(observations)
        mean, var = observations.mean(0), observations.var(0, correction=0)
        gap = mean - self.mean
        squares = self.var * self.count + var * count + gap**2 * self.count * count / total
        self.mean.add_(gap * count / total)
        self.var.copy_(squares / total)
        self.count.copy_(total)

    def forward(self, x: Tensor) -> Tensor:
        """Return normalized observations."""
        return (x - self.mean) / (self.var + self.epsilon).sqrt()


class SimBaBlock(nn.Module):
    """Normalize, expand four times, ReLU, project back, and add to the stream."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, 4 * dim)
        self.project = nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the stream."""
        return x + self.project(self.expand(self.norm(x)).relu())


class SimBa(nn.Module):
    """MethodState normalization of the input, a linear embedding, residual blocks, a last LayerNorm and a linear head.

    Args:
        inputs: Size of an observation; for a critic, of observation and action together.
        outputs: Size of the output.
        dim: Width of the residual stream.
        depth: Number of blocks.

    Example:
        >>> SimBa(5, 2, dim=8, depth=1)(torch.zeros(3, 5)).shape
        torch.Size([3, 2])
    """

    def __init__(self, inputs: int, outputs: int, dim: int, depth: int) -> None:
        super().__init__()
        self.running = RunningNorm(inputs)
        self.embed = nn.Linear(inputs, dim)
        self.blocks = nn.ModuleList(SimBaBlock(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map observations to outputs."""
        x = self.embed(self.running(x.flatten(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def simba_actor(observation: int, action: int, dim: int = 128, depth: int = 1) -> SimBa:
    """Return the actor: mean and logarithm of the deviation of each action, side by side (FIRE, Table 5)."""
    return SimBa(observation, 2 * action, dim, depth)


def simba_critic(observation: int, action: int, dim: int = 512, depth: int = 2) -> SimBa:
    """Return one critic: a value for observation and action, concatenated in this order (FIRE, Table 5)."""
    return SimBa(observation + action, 1, dim, depth)
