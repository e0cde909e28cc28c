"""Singular values of the weights, for charts, and the stable rank of each weight matrix."""

from __future__ import annotations

from torch import Tensor

from rekindle.kernels.spectra import rank_by_energy
from rekindle.metrics._matrices import left_out, spectra
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="spectrum",
    title="Spectrum of the weights",
    source="FIRE, 3.2; stable rank: Rudelson and Vershynin (2007)",
    what="The stable rank |W|_F^2 / |W|_2^2 of each weight over its smaller side: 1 for an isometry, toward 0 when "
    "few directions carry the weight. A layer with several matrices (kernel positions, groups) has their mean; "
    "the model's is the mean over layers. In details: stable_rank undivided, singular_values (descending, mean "
    "over the layer's matrices), largest and smallest.",
    unit="fraction of the smaller side",
    direction="higher",
    range=(0.0, 1.0),
    needs=("weights",),
    known="A collapsed spectrum goes with lost plasticity, but learning itself makes spectra uneven, and networks of "
    "low rank can learn well. Compare with the initial spectrum (a fresh square Gaussian matrix has about 0.25).",
)


def spectrum(singular: Tensor) -> Tensor:
    """Return the stable rank of each matrix over its smaller side, from singular values [..., k], descending.

    Example:
        >>> import torch
        >>> spectrum(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
        tensor([1.0000, 0.5000])
    """
    return rank_by_energy(singular) / singular.shape[-1]


def measure(inputs: MetricInputs) -> Reading:
    """Return the stable rank of each weight as a fraction, and the mean."""
    parts: dict[str, float] = {}
    charts: dict[str, dict[str, object]] = {
        "stable_rank": {}, "singular_values": {}, "largest": {}, "smallest": {}
    }  # fmt: skip
    for weight, values in spectra(inputs):
        parts[weight.name] = float(spectrum(values).mean())
        charts["stable_rank"][weight.name] = float(rank_by_energy(values).mean())
        charts["singular_values"][weight.name] = values.mean(0).tolist()
        charts["largest"][weight.name] = float(values.amax())
        charts["smallest"][weight.name] = float(values.amin())
    summary = sum(parts.values()) / max(len(parts), 1)
    return Reading(METRIC.key, summary, parts, {**charts, "left_out": left_out(inputs.graph)})
