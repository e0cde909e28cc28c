"""An experiment of four runs that take no time."""

from papers.experiment import Experiment, Measure, Paper, Published, Study, cells
from papers.rules import Larger, Numbers

BASE = {
    "protocol": "rounds:blocks=3,repeats=1,steps=3",
    "model": "mlp_synthetic:init=glorot",
    "optimizer": "sgd:lr=0.05",
}
TINY = Experiment(
    "tiny-table-1",
    Paper("small", "Small (A)", "A small paper"),
    "Table 1",
    "A small one.",
    published={("1", "BL"): Published(12.5, 50.0, 3)},
    measures=(Measure(scale=100),),
    paper_study=Study(
        cells(BASE, {"1": {"data": "synthetic:train=16,test=64"}}, {"BL": "none", "WELSR": "welsr"}), seeds=2, minutes=1
    ),
    rules=(Numbers(), Larger("WELSR is better", "WELSR", ("BL",))),
)
