"""FIRE: replace weight matrices by the nearest isometry, times a scale."""

from __future__ import annotations

import math
from dataclasses import fields
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import (
    CUBIC,
    MUON,
    QUINTIC,
    Card,
    Edit,
    Edits,
    Evidence,
    PlanError,
    SettingsError,
    Skip,
    UnitGraph,
    Weight,
    matches,
    matrix_edits,
    newton_schulz,
    one_shot_method,
    polar,
    polar_exact,
)
from rekindle.methods.one_shot._families import (
    Family,
    as_head,
    is_linear,
    reason_to_leave,
    redraw_linear,
    refuse_unclear,
    refuse_unknown_roles,
    refuse_without_tied_head,
)

COEFFICIENTS = {"newton_schulz": CUBIC, "quintic": QUINTIC, "muon": MUON}
Preset = Literal["cnn", "vit", "gpt", "dqn", "paper"]
# Steps of the published iteration in each family. "paper" is the first name of "cnn"; keys of stored runs have it.
STEPS: dict[Preset, int] = {"cnn": 10, "vit": 10, "gpt": 5, "dqn": 10, "paper": 10}

CARD = Card(
    title="FIRE, Frobenius-isometry reinitialization",
    source="Han et al., FIRE: Frobenius-Isometry Reinitialization for Balancing the Stability-Plasticity Tradeoff: "
    "3.3 (eq. 4, 5), 3.4 (Algorithm 1), B.2, B.3, C; presets by the published code, github.com/isaac7778/FIRE",
    what="Moves weight matrices to the nearest matrix with orthonormal rows or columns, times a scale. "
    "W' = scale * W (W^T W)^(-1/2): the least squared Frobenius error (SFE) among all matrices with deviation from "
    "isometry (DfI) zero. Linear: scale = sqrt(out/in). Convolution: kernel position by kernel position, "
    "scale = sqrt(out/in)/(positions). In a model with attention the queries and keys and nothing else, in any other "
    "every linear and convolution weight; attention='all' takes every one in any model. Biases, normalization and "
    "embeddings stay; tied=True takes an embedding that is tied to the head, too, as the head. Presets are what was "
    "published for a family: cnn (every linear and convolution weight, ten cubic steps), vit (queries and keys, ten), "
    "gpt (all of attention, the MLPs and the head with the embedding tied to it, five), dqn (convolutions, ten; linear "
    "layers are drawn afresh, biases too).",
    when="When new data arrive and the network was trained long on the old: it restores an even spectrum and keeps the "
    "directions that were learned. Not on networks that you only want to evaluate: outputs change.",
    cost="About half of the published ten Newton-Schulz steps (auto), or about as much (exact); well below one epoch. "
    "Measured in benchmarks/. Twice the largest tensor in extra memory, beside the copies kept for undo.",
    deviations=(
        "The default solver reaches a deviation from isometry per row of `tolerance`; the paper's ten cubic "
        "Newton-Schulz steps leave small singular values short of one (0.16 per row for a 512x512 Gaussian matrix). "
        "The presets have the published arithmetic.",
        "A zero matrix stays zero (published code: NaN), and directions that a rank-deficient matrix lacks stay zero.",
        "Grouped and depthwise convolutions are treated group by group; a depthwise kernel is a 1x1 matrix for each "
        "position, so that FIRE keeps only its signs: use skip= where that is too much.",
        "The paper names two polynomials (3.4 cubic, B.3 quintic) and Muon's; all three are there. The published code "
        "has the cubic one.",
        "scale='norm' keeps each matrix's norm and scale='init' that of its initializer, because the paper's scale for "
        "convolutions shrinks activations (3x3: 0.24 of He's; Nature CNN: 0.03 after three layers).",
        "The paper restricts itself to queries and keys in vision transformers (C) and treats every weight of a GPT; "
        "the default is the first for every model with attention. preset='gpt' is the second, which raises the loss "
        "of a fresh model; attention='all', tied=True is the same choice with any solver and number of steps. "
        "Measured by `rekindle reproduce fire-language-choice` on a small overtrained GPT, two seeds of three, loss "
        "right after, after 100 and after 800 steps on new text: going on 7.01, 2.46, 2.37; q and k 8.21, 2.47, 2.37; "
        "all matrices 6.24, 2.63, 2.32; with the tied head and five steps (preset='gpt') 4.32, 2.46, 2.28. So q and k "
        "alone do little for a language model that has lost its plasticity; the default stays until all seeds are in.",
        "A fused projection of queries, keys and values is split first, as the published code does for c_attn. "
        "Without an example that is done where names leave no doubt, and refused elsewhere. heads='each' (head by "
        "head) is ours.",
        "preset='dqn' draws linear layers by their own initializers, or takes them from reference= (published: a "
        "network drawn by Xavier's initializer, biases zero). The published code copies the result into the target "
        "network too; name that in copies=.",
        "blend between the old weights and the isometry (in dqn also the fresh ones) is ours.",
        "Under weight_norm the effective weight is treated, through gain and direction.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
>>> record = rk.fire_(net, example=torch.zeros(1, 8))
>>> torch.linalg.svdvals(net[2].weight).allclose(torch.tensor(4 / 6).sqrt(), atol=1e-2)
True
""",
    needs=("example",),
)


@one_shot_method(CARD, identity={"blend": 0.0})
class Fire:
    """Settings of FIRE.

    Args:
        solver: How the isometry is found: the cheapest way to the tolerance (auto), exact, or the published polynomial
            iteration with these coefficients.
        iterations: Steps of the published iteration; auto and exact have none, and refuse another number.
        tolerance: Deviation from isometry per row, scale divided out, that auto must reach.
        scale: Paper (sqrt(out/in), over kernel positions), norm (keep the matrix's), or init (the initializer's).
        attention: In a model with attention treat queries and keys and nothing else (qk), or in any model every linear
            and convolution weight (all).
        first: Treat weights that read the model's input.
        last: Treat weights that write the model's output.
        heads: Treat a query or key projection as one matrix (whole) or head by head (each).
        tied: Treat an embedding that is tied to the head, as the head. It is both the first and the last layer, and in
            a model with attention it needs attention='all'; a model without one is refused.
        blend: 0 keeps the old weights, 1 gives the isometry.
        skip: Patterns of tensor names to leave alone, as in `head.*`.
        preset: What was published for a family of networks, see the card: cnn, vit, gpt or dqn; paper is cnn. Beside it
            only blend and skip can be set.
    """

    key: ClassVar[str]

    solver: Literal["auto", "exact", "newton_schulz", "quintic", "muon"] = "auto"
    iterations: Annotated[int, Field(ge=1, le=1000)] = 10
    tolerance: Annotated[float, Field(gt=0, le=1)] = 1e-4
    scale: Literal["paper", "norm", "init"] = "paper"
    attention: Literal["qk", "all"] = "qk"
    first: bool = True
    last: bool = True
    heads: Literal["whole", "each"] = "whole"
    tied: bool = False
    blend: Annotated[float, Field(ge=0, le=1)] = 1.0
    skip: tuple[str, ...] = ()
    preset: Preset | None = None

    def __post_init__(self) -> None:
        """Refuse settings that would be left aside without a word."""
        given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
        idle = [name for name in given if name not in ("blend", "skip", "preset")] if self.preset else []
        if idle:
            self._refuse(
                idle,
                f"preset={self.preset!r} alone, or with blend and skip: it decides all other settings of fire",
                "leave out the preset and say solver='newton_schulz' and attention=, with what you want to change; or "
                "leave out the others",
            )
        if self.solver in ("auto", "exact") and "iterations" in given:
            self._refuse(
                ["iterations"],
                f"no iterations with solver={self.solver!r}, which goes on until it is there",
                "add solver='newton_schulz' for so many steps of the published iteration, or leave out iterations",
            )
        if self.solver != "auto" and "tolerance" in given:
            self._refuse(
                ["tolerance"],
                f"no tolerance with solver={self.solver!r}: only auto looks at it",
                "leave out tolerance, or take solver='auto'",
            )
        if self.tied and not (self.first and self.last):
            self._refuse(
                [name for name in ("first", "last", "tied") if name in given],
                "first=True and last=True with tied=True: an embedding that is tied to the head is both layers",
                "leave out tied, or first and last",
            )

    def _refuse(self, names: list[str], expected: str, fix: str) -> None:
        got = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        raise SettingsError(expected=expected, got=got, fix=fix)

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each weight that is treated, and a skip with the reason for each that is not.

        Raises:
            PlanError: It takes an example to tell queries and keys from other weights, or the parts of a fused one.
        """
        family: Family = self.preset or self.attention
        if not (self.first and self.last) and not graph.traced:
            raise PlanError(
                expected="example= for fire, to tell the first and the last layer from others",
                got="no example",
                fix="pass example= with an input of your model, or name the layers in skip= instead",
            )
        refuse_unknown_roles(graph, evidence, family)
        if self.tied:
            refuse_without_tied_head(graph, family)
        if self.blend == 0:
            return Edits()
        redrawn = family == "dqn"
        edits, skips = Edits(), []
        if redrawn:
            edits = redraw_linear(graph, evidence, seed, skip=self.skip, blend=self.blend, key=self.key)
        for weight in graph.weights:
            if redrawn and is_linear(weight):
                continue
            reason = self._reason_to_skip(weight, graph, family)
            if reason:
                skips.append(Skip(weight.name, reason))
            else:
                refuse_unclear(weight, graph)
                edits += Edits(self._edits(as_head(weight) if weight.role == "embedding" else weight, graph))
        return edits + Edits(skips=tuple(skips))

    def _reason_to_skip(self, weight: Weight, graph: UnitGraph, family: Family) -> str:
        if matches(weight.tensor, self.skip):
            return "named in skip"
        if reason := reason_to_leave(weight, graph, family, tied=self.tied or family == "gpt"):
            return reason
        if (weight.role == "input" and not self.first) or (weight.role == "head" and not self.last):
            return f"the {'first' if weight.role == 'input' else 'last'} layer, which was asked to stay"
        for place, stays, unsure in (
            ("first", not self.first, graph.maybe_first),
            ("last", not self.last, graph.maybe_last),
        ):
            if stays and weight.tensor in unsure:
                return f"perhaps the {place} layer, which was asked to stay: {unsure[weight.tensor]}"
        if self.scale == "init" and getattr(graph.initializers.get(weight.tensor), "std", 0.0) == 0.0:
            return "its initializer is not known, which scale='init' needs"
        return ""

    def _edits(self, weight: Weight, graph: UnitGraph) -> tuple[Edit, ...]:
        if self.heads == "each" and weight.role in ("q", "k", "v"):
            if not weight.heads:
                raise PlanError(
                    expected="example= for fire with heads='each', to see how many heads there are",
                    got=f"{weight.name}, whose heads are not known",
                    fix="pass example= with an input of your model, or leave out heads= to treat it as one matrix",
                )
            return matrix_edits(weight, partial(self._by_head, weight=weight, graph=graph), "fire")
        return matrix_edits(weight, partial(self._finish, weight=weight, graph=graph), "fire", solve=self._solve)

    def _by_head(self, matrices: Tensor, weight: Weight, graph: UnitGraph) -> Tensor:
        split = matrices.reshape(weight.heads or 1, -1, matrices.shape[-1])
        return self._finish(split, self._solve(split), weight, graph).reshape(matrices.shape)

    def _finish(self, matrices: Tensor, isometry: Tensor, weight: Weight, graph: UnitGraph) -> Tensor:
        """Return the isometry with its scale, or what lies on the way to it."""
        isometry = isometry.mul_(self._factor(matrices, isometry, weight, graph))
        return isometry if self.blend == 1 else torch.lerp(matrices, isometry, self.blend)

    def _solve(self, matrices: Tensor) -> Tensor:
        if self.preset is not None:
            return newton_schulz(matrices, STEPS[self.preset], CUBIC)
        if self.solver == "auto":
            return polar(matrices, self.tolerance)
        if self.solver == "exact":
            return polar_exact(matrices)
        return newton_schulz(matrices, self.iterations, COEFFICIENTS[self.solver])

    def _factor(self, old: Tensor, isometry: Tensor, weight: Weight, graph: UnitGraph) -> Tensor | float:
        out, in_ = isometry.shape[-2:]
        if self.scale == "paper":
            return math.sqrt(out / in_) / weight.kernel
        now = torch.linalg.vector_norm(isometry, dim=(-2, -1), keepdim=True)
        now = torch.where(now > 0, now, torch.ones_like(now))
        if self.scale == "norm":
            return torch.linalg.vector_norm(old, dim=(-2, -1), keepdim=True) / now
        std: float = graph.initializers[weight.tensor].std  # type: ignore[attr-defined]
        return std * math.sqrt(out * in_) / now
