"""Trace a model into weights and unit groups, and prove it on the model.

How it works, on a network with one turn in it: a convolution, a flatten, a linear layer.

    >>> import torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 2 * 2, 3))
    >>> image = torch.zeros(1, 1, 4, 4)

`torch.export` gives the operations, with shapes. The tracer walks through them, and in place of numbers it carries
*labels*: each position along each axis of each parameter has one. The convolution writes the labels of its output
channels, 0 and 1 here, onto what it returns; the rule of `relu` leaves them; `flatten` is called on the labels as it
is called on the values:

    >>> labels = torch.tensor([0, 1]).reshape(1, 2, 1, 1).expand(1, 2, 2, 2)  # [batch, channel, height, width]
    >>> nn.Flatten()(labels)
    tensor([[0, 0, 0, 0, 1, 1, 1, 1]])

So element 5 of what the linear layer reads belongs to channel 1, whatever happened on the way: no layout is special.
The linear layer has labels along its input, say 10 to 17. A product ties each to what it meets, 10 to 0, ..., 17 to 1.
Labels that are tied are one *unit*, and units that stand in the same tensors in the same way are a *group*:

    >>> hidden, output = trace(net, image).groups
    >>> for slot in (*hidden.incoming, *hidden.outgoing):
    ...     print(slot.tensor, slot.where.dims, slot.where.index.tolist())
    0.weight (0,) [[0], [1]]
    0.bias (0,) [[0], [1]]
    3.weight (1,) [[0, 1, 2, 3], [4, 5, 6, 7]]

Unit 1 is row 1 of the kernel, element 1 of its bias, and columns 4 to 7 of the linear layer. That is all that a method
needs to reset it, and all that the rest of the library knows about convolutions.

Where to find what:

- `calls`, `unwrap`: what a model is called with, and what is around it. `export` gets its operations, `branching` those
  of a model that `torch.export` cannot follow, `programs` chooses.
- `tracing` is what users call; `walking` goes through the operations, `operations` has their rules, `rules` the two
  behind nearly all of them; `value` and `trace_log` hold labels and ties.
- `units`, `roles` and `assemble` make the graph of it: `unit_graph`, `groups`, `weight`, `regions`.
- `scaling` and `lipschitz` go through the same operations once more, when they are asked; `verification` and `proof`
  try the graph on the model itself.
- `cache`, `trace_key`, `facts`, `constants`: a trace is found again as long as nothing has changed.
- `scan`, `scan_state_dict`, `projections`, `gates`: what types, names and shapes tell without a trace.
"""

from rekindle.graph.groups import Group, Slot
from rekindle.graph.tracing import trace
from rekindle.graph.unit_graph import UnitGraph
from rekindle.graph.verification import Verification, verify
from rekindle.graph.weight import Weight

__all__ = ["Group", "Slot", "UnitGraph", "Verification", "Weight", "trace", "verify"]
