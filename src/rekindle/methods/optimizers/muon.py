"""Muon: an optimizer that orthogonalizes the updates of hidden matrices, with AdamW for the rest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.methods import (
    Card,
    NoEffectWarning,
    SettingsError,
    UnitGraph,
    Weight,
    bare,
    matches,
    optimizer_method,
    parameters_of,
    scan,
    trace,
    why_not_in_place,
)

CARD = Card(
    title="Muon for hidden matrices, AdamW for the rest",
    source="Jordan et al. 2024, Muon: An optimizer for hidden layers in neural networks; FIRE: D",
    what="One optimizer that runs torch.optim.Muon on the weight matrices of hidden layers and AdamW on everything "
    "else. Muon averages gradients, B <- momentum B + (1 - momentum) g, and replaces the average by a matrix whose "
    "singular values are all near one: a few Newton-Schulz steps toward its polar factor. AdamW has the input layer, "
    "the head, embeddings, biases and normalization.",
    when="When a model is trained with new data again and again and the optimizer may be chosen: updates of full rank "
    "keep weights from losing directions. It is an optimizer, so it is built in place of Adam, and works with "
    "rk.apply_ and with a Keeper as any other. Learning rates of Adam do not carry over, unless "
    "adjust_lr_fn=match_rms_adamw.",
    cost="`ns_steps` times three matrix products in bfloat16 for each hidden matrix and step; one moment for each of "
    "their weights instead of AdamW's two.",
    deviations=(
        "torch.optim.Muon takes matrices only. A hidden convolution is shown to it as a view [out, in * kernel], as "
        "the reference implementation flattens it; the factor sqrt(max(1, out / in)) of the learning rate is that of "
        "this matrix, where the reference implementation has the kernel's sides in it.",
        "Grouped and depthwise convolutions, weights under weight_norm and weights that a layer computes something "
        "from go to AdamW: they are not one matrix that maps inputs to outputs.",
        "Layers that store the transpose (GPT-2's Conv1D, transposed convolution) are shown transposed, so that the "
        "factor of the learning rate is theirs. A fused projection of queries, keys and values is one matrix.",
        "With an example, input layers and heads are those of the traced graph. Without one, they are the first and "
        "the last layer with a weight matrix in the order of definition: give an example if that is not so.",
        "Defaults are those of the reference implementation (lr 0.02 and 3e-4, no weight decay), not torch's.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 6), torch.nn.ReLU(),
...                           torch.nn.Linear(6, 4))
>>> optimizer = rk.muon(net, example=torch.zeros(1, 8), lr=0.02)
>>> [(group["algorithm"], group["lr"], group["param_names"]) for group in optimizer.param_groups]
[('muon', 0.02, ['2.weight']), ('adamw', 0.0003, ['0.weight', '0.bias', '2.bias', '4.weight', '4.bias'])]
""",
)

HIDDEN = ("hidden", "q", "k", "v", "o")


@optimizer_method(CARD, identity={"lr": 0.0, "adamw_lr": 0.0})
class Muon:
    """Settings of Muon and of the AdamW beside it.

    Args:
        lr: Learning rate of hidden matrices, in units of the update's spectral norm.
        momentum: Weight of the past in the average of gradients.
        weight_decay: Decoupled weight decay of hidden matrices.
        nesterov: Look one gradient ahead.
        ns_steps: Newton-Schulz steps.
        adjust_lr_fn: How the learning rate follows a matrix's shape, as in torch.optim.Muon: "original" times
            sqrt(max(1, out / in)), "match_rms_adamw" times 0.2 sqrt(max(out, in)).
        adamw_lr: Learning rate of the rest.
        adamw_betas: AdamW's weights of the past.
        adamw_eps: AdamW's small number in the denominator.
        adamw_weight_decay: Decoupled weight decay of the rest.
        skip: Patterns of parameter names that AdamW gets, hidden or not.
    """

    lr: Annotated[float, Field(ge=0)] = 0.02
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    nesterov: bool = True
    ns_steps: Annotated[int, Field(ge=1, lt=100)] = 5
    adjust_lr_fn: Literal["original", "match_rms_adamw"] = "original"
    adamw_lr: Annotated[float, Field(ge=0)] = 3e-4
    adamw_betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    adamw_eps: Annotated[float, Field(gt=0)] = 1e-10
    adamw_weight_decay: Annotated[float, Field(ge=0)] = 0.0
    skip: tuple[str, ...] = ()

    def build(self, model: nn.Module, example: Any = None, *, graph: UnitGraph | None = None) -> MuonWithAdamW:
        """Return the optimizer for a model.

        Args:
            model: The model; it may be compiled or wrapped, see `rekindle.trace`.
            example: Input for the model, from which it is traced which layers are hidden.
            graph: The model's graph, if it was traced before.
        """
        if not hasattr(torch.optim, "Muon"):
            raise SettingsError(
                expected="a torch with torch.optim.Muon (2.9 or later) for muon",
                got=f"torch {torch.__version__}",
                fix="update torch, or choose another optimizer",
            )
        model = bare(model)
        _refuse_not_trainable(parameters_of(model))
        if graph is None and example is not None:
            graph = trace(model, example, strict=False)
        stored = {name: by for name, by in _hidden(model, graph) if not matches(name, self.skip)}
        if not stored:
            warnings.warn("muon finds no hidden matrix: AdamW has all parameters", NoEffectWarning, stacklevel=2)
        return MuonWithAdamW(self, parameters_of(model), stored)

    def _empty_group(self, algorithm: Literal["muon", "adamw"]) -> dict[str, Any]:
        """Return a group of torch's own optimizer with these settings, still without parameters."""
        nobody = nn.Parameter(torch.zeros(1, 1))
        made: Optimizer
        if algorithm == "muon":
            made = torch.optim.Muon(
                [nobody],
                lr=self.lr,
                momentum=self.momentum,
                weight_decay=self.weight_decay,
                nesterov=self.nesterov,
                ns_steps=self.ns_steps,
                adjust_lr_fn=self.adjust_lr_fn,
            )
        else:
            made = torch.optim.AdamW(
                [nobody],
                lr=self.adamw_lr,
                betas=self.adamw_betas,
                eps=self.adamw_eps,
                weight_decay=self.adamw_weight_decay,
            )
        return {**made.param_groups[0], "algorithm": algorithm, "params": []}


def _refuse_not_trainable(parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse trained parameters whose elements AdamW cannot step one by one; complex ones it can."""
    found = {name: why for name, p in parameters.items() if p.requires_grad and (why := why_not_in_place(p))}
    if found:
        name, why = next(iter(found.items()))
        raise SettingsError(
            expected="trained parameters whose elements can be written one by one",
            got=f"{name}: {why}",
            fix="freeze it (requires_grad_(False)), or make it dense with memory of its own",
        )


def _hidden(model: nn.Module, graph: UnitGraph | None) -> Iterator[tuple[str, bool]]:
    """Yield the names of hidden matrices, and whether each is stored transposed."""
    known = graph if graph is not None and graph.traced else scan(model)
    unsure = known.maybe_first.keys() | known.maybe_last.keys()  # of these as without an example
    ends = [] if known.traced and not unsure else _first_and_last(model)
    parameters = parameters_of(model)
    for name in dict.fromkeys(weight.tensor for weight in known.weights):
        weights = known.weights_of(name)
        plain = all(weight.role in HIDDEN and not weight.tied and _one_matrix(weight) for weight in weights)
        judged = not known.traced or name in unsure
        if plain and not (judged and any(parameters[name] is end for end in ends)):
            yield name, weights[0].view.out == (1,)


def _first_and_last(model: nn.Module) -> list[Tensor]:
    found = [weight for module in model.modules() if isinstance(weight := getattr(module, "weight", None), Tensor)]
    matrices = [weight for weight in found if weight.dim() > 1]
    return [matrices[0], matrices[-1]] if matrices else []


def _one_matrix(weight: Weight) -> bool:
    """Tell whether a stored tensor is a map from inputs to outputs, [out, in, kernel] or [in, out, kernel]."""
    ends = sorted(weight.view.out + weight.view.in_) == [0, 1]
    return weight.gain is None and not weight.computed and weight.view.view == weight.shape and ends


class MuonWithAdamW(Optimizer):
    """torch.optim.Muon and torch.optim.AdamW as one optimizer.

    Each group says under "algorithm" which of the two has it, and under "transposed" (of Muon's) how its matrices are
    stored. State of a parameter has the parameter's own shape, also for a convolution.
    """

    def __init__(self, chosen: Muon, parameters: Mapping[str, nn.Parameter], stored: Mapping[str, bool]) -> None:
        """Sort the parameters into groups; `stored` has the hidden ones, and whether they are stored transposed."""
        groups = [{**chosen._empty_group("muon"), "transposed": False}]
        groups += [{**chosen._empty_group("muon"), "transposed": True}] if any(stored.values()) else []
        groups += [chosen._empty_group("adamw")]
        for name, parameter in parameters.items():
            fitting = next(group for group in groups if group.get("transposed") == stored.get(name))
            fitting["params"].append((name, parameter))
        self._complete = False
        super().__init__([group for group in groups if group["params"]], {})
        self._complete = True
        self._with_engines()

    def _with_engines(self) -> None:
        nobody = nn.Parameter(torch.zeros(1, 1))
        self._muon, self._adamw = torch.optim.Muon([nobody]), torch.optim.AdamW([nobody])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Come back from a copy, a pickle or a loaded state."""
        super().__setstate__(state)
        self._complete = True
        self._with_engines()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: it would have to be guessed which algorithm is to have the parameters.

        Raises:
            SettingsError: Always, once the optimizer is built.
        """
        if self._complete:
            raise SettingsError(
                expected="all parameters when the optimizer is built",
                got="a group that is added later",
                fix="build a new one with rk.muon(model, example=x), or give these parameters their own optimizer",
            )
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state that `state_dict` of an optimizer with the same groups returned.

        Raises:
            SettingsError: It has other groups.
        """
        own, other = (
            [(group.get("algorithm"), group.get("transposed"), len(group["params"])) for group in groups]
            for groups in (self.param_groups, state_dict["param_groups"])
        )
        if own != other:
            raise SettingsError(
                expected=f"a state with the groups {own} (algorithm, transposed, number of parameters)",
                got=f"one with {other}",
                fix="build the optimizer as the saved one was: same model, with or without example, same skip",
            )
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step with each of the two; a closure is called once, before both."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._adamw.state = self.state
        self._adamw.param_groups = [group for group in self.param_groups if group["algorithm"] == "adamw"]
        self._adamw.step()
        for group in self.param_groups:
            if group["algorithm"] == "muon":
                self._step_matrices(group)
        return loss

    def _step_matrices(self, group: dict[str, Any]) -> None:
        """Let torch's Muon work on matrices that share memory with a group's parameters and moments."""
        shown = [self._shown(p, group["transposed"]) for p in group["params"] if p.grad is not None]
        self._muon.state.update(shown)
        self._muon.param_groups = [{**group, "params": [matrix for matrix, _ in shown]}]
        try:
            self._muon.step()
        finally:
            self._muon.state.clear()  # or it would hold on to the gradients
            self._muon.param_groups = []

    def _shown(self, parameter: Tensor, transposed: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a parameter as a matrix, with its gradient, and its moment in the same view."""
        state = self.state[parameter]
        moment = state.get("momentum_buffer")
        state["momentum_buffer"] = torch.zeros_like(parameter) if moment is None else _laid_out_as(parameter, moment)
        matrix = _as_matrix(parameter, transposed)
        assert parameter.grad is not None
        matrix.grad = _as_matrix(_laid_out_as(parameter, parameter.grad), transposed)
        return matrix, {"momentum_buffer": _as_matrix(state["momentum_buffer"], transposed)}


def _as_matrix(tensor: Tensor, transposed: bool) -> Tensor:
    """Return a view [out, in * kernel] of a weight; the kernel comes first in a weight that has channels last."""
    strides = tensor.stride()
    rest = sorted(range(1, tensor.dim()), key=lambda dim: -strides[dim])
    matrix = tensor.detach().permute(0, *rest).view(len(tensor), -1)
    return matrix.T if transposed else matrix


def _laid_out_as(parameter: Tensor, tensor: Tensor) -> Tensor:
    """Return a tensor whose elements lie in memory as the parameter's do: itself, if they do."""
    return tensor if tensor.stride() == parameter.stride() else torch.zeros_like(parameter).add_(tensor)
