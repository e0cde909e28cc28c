"""Layerwise reinitialization on synthetic data: Tables 1 and 5."""

from __future__ import annotations

from papers.experiment import Cell, Experiment, Fields, Measure, Study, cells, published
from papers.layerwise import PAPER
from papers.rules import Larger, Numbers
from rekindle.methods import change

PERCENT = Measure(scale=100)
SIX = ("BL", "WELSR", "DSD", "WELS", "FC", "LW")
SIGNALS = ("0.5", "1.0", "2.0")
ROUNDS = "rounds:blocks=3,repeats=3,steps=200"
LW = "layerwise:blocks=layers.0|layers.1|layers.2"
SYNTHETIC = {"optimizer": "sgd:lr=0.05", "batch_size": 256, "model": "mlp_synthetic:init=glorot"}
BY_SIGNAL = {signal: {"data": f"synthetic:signal={float(signal):g}"} for signal in SIGNALS}
MASKED = {name: f"{name.lower()}:fraction=0.2" for name in ("WELSR", "DSD", "WELS")}


def _six(rounds: str) -> dict[str, Fields]:
    """Return the six methods; the baseline trains once for as long."""
    treated = {**MASKED, "FC": "head_reset:layers=2", "LW": LW}
    baseline = {"methods": "none", "protocol": change(rounds, restart="false")}
    return {"BL": baseline, **{name: {"methods": spec, "protocol": rounds} for name, spec in treated.items()}}


TABLE_1 = published(
    SIGNALS,
    {
        "BL": [(20.3, 0.6), (50.7, 5.4), (94.6, 2.0)],
        "WELSR": [(24.6, 1.0), (72.9, 0.9), (98.2, 0.4)],
        "DSD": [(22.9, 0.6), (53.4, 0.7), (90.3, 1.4)],
        "WELS": [(23.1, 1.4), (66.1, 2.1), (96.8, 0.1)],
        "FC": [(23.6, 3.0), (68.6, 2.1), (99.0, 0.2)],
        "LW": [(25.2, 0.8), (72.3, 3.6), (99.8, 0.2)],
    },
)
table_1 = Experiment(
    "layerwise-table-1",
    PAPER,
    "Table 1",
    "On synthetic data all reinitialization methods but DSD improve test accuracy, LW most.",
    published=TABLE_1,
    measures=(PERCENT,),
    paper_study=Study(
        cells(
            {**SYNTHETIC, "protocol": ROUNDS},
            BY_SIGNAL,
            _six(ROUNDS),
        ),
        seeds=20,
        minutes=10,
    ),
    rules=(
        Numbers(),
        Larger("LW is better than training on", "LW", ("BL",)),
        Larger("LW is the best of all", "LW", ("BL", "WELSR", "DSD", "WELS", "FC")),
        Larger("WELSR is better than training on", "WELSR", ("BL",)),
        Larger("WELS is better than training on", "WELS", ("BL",)),
        Larger("FC is better than training on", "FC", ("BL",)),
    ),
    notes=(
        "Not stated: initialization (here Glorot uniform, biases zero, as Keras has it), number of runs (here 20), "
        "size of the test set (here 2048), whether a boundary comes before the first round (here not), how many layers "
        "FC draws afresh (here both above the first). `layerwise-table-1-open` varies them.",
        "Fresh values are drawn anew in every round. Going back to the weights of the start instead, which eq. 1 does "
        "not say, costs the mask methods 10 to 20 points at strength 1 (a quick trial of four seeds).",
    ),
)


def _open() -> dict[str, Fields]:
    found: dict[str, Fields] = {
        f"BL, {init}": {"methods": "none", "model": f"mlp_synthetic:init={init}"} for init in ("torch", "he")
    }
    for init in ("torch", "he"):
        found |= {
            f"{name}, {init}": {"methods": s, "model": f"mlp_synthetic:init={init}"} for name, s in MASKED.items()
        }
        found[f"LW, {init}"] = {"methods": LW, "model": f"mlp_synthetic:init={init}"}
    for part in ("0.1", "0.3", "0.4"):
        found |= {f"{name}, {part}": {"methods": f"{name.lower()}:fraction={part}"} for name in MASKED}
    found |= {f"{name}, weights only": {"methods": change(spec, which="weights")} for name, spec in MASKED.items()}
    found |= {f"{name}, from the start": {"methods": change(spec, fresh="reference")} for name, spec in MASKED.items()}
    found |= {
        f"{name}, boundary first": {"methods": s, "protocol": change(ROUNDS, begin="boundary")}
        for name, s in MASKED.items()
    }
    found["DSD, global"] = {"methods": "dsd:scope=global"}
    found["FC, head only"] = {"methods": "head_reset:layers=1"}
    found["LW, boundary first"] = {"methods": LW, "protocol": change(ROUNDS, begin="boundary")}
    found["LW, no block at the head"] = {"methods": "layerwise:blocks=layers.0|layers.1|layers.1"}
    found |= {f"{name}, lr 0.2": {**fields, "optimizer": "sgd:lr=0.2"} for name, fields in _six(ROUNDS).items()}
    shared = {"data": "synthetic:signal=1,draw=0"}
    found |= {f"{name}, one set for all runs": {**fields, **shared} for name, fields in _six(ROUNDS).items()}
    found |= {f"{name}, 800 steps a round": fields for name, fields in _six(change(ROUNDS, steps=800)).items()}
    return found


OPEN = _open()
table_1_open = Experiment(
    "layerwise-table-1-open",
    PAPER,
    "Table 1, what it leaves open",
    "How the numbers at strength 1 move with what the paper does not state.",
    published={("1.0", name): TABLE_1["1.0", name.partition(",")[0]] for name in OPEN},
    measures=(PERCENT,),
    paper_study=Study(cells({**SYNTHETIC, "protocol": ROUNDS}, {"1.0": BY_SIGNAL["1.0"]}, OPEN), seeds=10, minutes=12),
    rules=(Numbers(),),
    notes=(
        "Each line changes one thing of `layerwise-table-1`; the published number is that of the method.",
        "Written after the run: with 0.4 of the weights DSD and WELS agree, and FC does to a tenth of a point if the "
        "head alone is drawn afresh. Nothing tried brings LW down to 72.3, or WELSR to 72.9 with a deviation of 0.9.",
        "The lines with a rate of 0.2, 800 steps and one set for all runs were added later, to find why the mask "
        "methods end low. Longer rounds are part of it: with four times the rate or the steps WELSR (69.1), DSD (51.4) "
        "and FC (69.8) agree and the baseline still does (52.9), WELS (59.9) and LW (83.5) do not. That all seeds "
        "share a set is not: the mask methods still deviate by 3.5 to 6.2, where 0.7 to 2.1 are published.",
    ),
)

PENALTIES = ("0.0", "0.005", "0.01", "0.02", "0.05", "0.1")
TABLE_5 = published(
    PENALTIES,
    {
        "Baseline": [0.19, 0.51, 0.54, 0.58, 0.77, 0.59],
        "Rescaling": [0.21, 0.67, 0.89, 0.87, 0.78, 0.63],
        "LW": [0.25, 0.82, 0.85, 0.86, 0.79, 0.64],
    },
    n=100,
)
FIVE = "rounds:blocks=5,repeats=1,begin=boundary,steps={steps}"
# Above the first layer in the first two rounds, above the second in the next two, the top layer in the last.
LW_FIVE = "layerwise:normalize=false,blocks=layers.0|layers.0|layers.1|layers.1|layers.1"


def _penalized(penalty: str, method: str = "", factor: float = 2.0, which: str = "weights") -> str:
    parts = [f"l2:strength={float(penalty) * factor:g},which={which}"] if float(penalty) else []
    return "+".join([*parts, *([method] if method else [])]) or "none"


def _table_5_cells(
    steps: int, optimizer: str, factor: float = 2.0, which: str = "weights", batch: int = 256, tag: str = ""
) -> tuple[Cell, ...]:
    same = {"data": "synthetic:signal=0.5", "protocol": FIVE.format(steps=steps), "optimizer": optimizer}
    base: Fields = {**SYNTHETIC, **same, "batch_size": batch}
    found: list[Cell] = []
    for penalty in PENALTIES:
        methods = {
            f"Baseline{tag}": _penalized(penalty, "", factor, which),
            f"Rescaling{tag}": _penalized(penalty, "rescale:proportional=false", factor, which),
            f"LW{tag}": _penalized(penalty, LW_FIVE, factor, which),
        }
        found += cells(base, {penalty: {}}, methods)
    return tuple(found)


T5_RULES = (
    Larger(
        "rescaling at its best is better than the baseline at 0.01", "Rescaling", ("Baseline",), conditions=("0.01",)
    ),
    Larger("LW at 0.005 is better than the baseline", "LW", ("Baseline",), conditions=("0.005",)),
)
T5_OPEN: dict[str, tuple[int, str, float, str, int]] = {
    ", T 10000": (2000, "sgd:lr=0.05", 2.0, "weights", 256),
    ", lr 0.5": (360, "sgd:lr=0.5", 2.0, "weights", 256),
    ", Adam": (360, "adam:lr=1e-3", 2.0, "weights", 256),
    ", Adam, T 4000": (800, "adam:lr=1e-3", 2.0, "weights", 256),
    ", Adam, T 10000": (2000, "adam:lr=1e-3", 2.0, "weights", 256),
    ", half": (360, "sgd:lr=0.05", 1.0, "weights", 256),
    ", all": (360, "sgd:lr=0.05", 2.0, "all", 256),
    ", batches of 32": (2000, "sgd:lr=0.05", 2.0, "weights", 32),
    ", Adam, batches of 32": (800, "adam:lr=1e-3", 2.0, "weights", 32),
    ", Adam, batches of 32, T 1000": (200, "adam:lr=1e-3", 2.0, "weights", 32),
    ", Adam 0.01": (360, "adam:lr=1e-2", 2.0, "weights", 256),
}
table_5 = Experiment(
    "layerwise-table-5",
    PAPER,
    "Table 5",
    "With a tuned L2 penalty rescaling and LW reach 0.89 and 0.86 where the baseline reaches 0.77.",
    published=TABLE_5,
    paper_study=Study(_table_5_cells(360, "sgd:lr=0.05"), seeds=100, minutes=50),
    rules=(Numbers(), *T5_RULES),
    notes=(
        "Not stated: optimizer and T. Here as in Table 1: gradient descent, 0.05, T = 1800 in five parts; the penalty "
        "is lambda |W|^2 on weights, as Keras has it. `layerwise-table-5-open` tries others.",
        "Deviations are not published; the measured one stands for both in the verdict.",
        "With `--stack` it takes 10 minutes instead of 50.",
        "Written after the run: plain gradient descent is hardly what the paper had. Without a penalty the numbers are "
        "near, with one all stay below 0.41.",
    ),
)
table_5_open = Experiment(
    "layerwise-table-5-open",
    PAPER,
    "Table 5, what it leaves open",
    "Which optimizer, T and form of the penalty come near the published numbers.",
    published={(p, f"{m}{tag}"): TABLE_5[p, m] for tag in T5_OPEN for p, m in TABLE_5},
    paper_study=Study(
        tuple(cell for tag, given in T5_OPEN.items() for cell in _table_5_cells(*given, tag=tag)), seeds=5, minutes=25
    ),
    rules=(Numbers(),),
    notes=(
        "Each line changes something of `layerwise-table-5`; the published number is that of the method.",
        "Written after the run: Adam at 1e-3 comes near, gradient descent does not. With full batches and T = 4000 the "
        "baseline up to 0.01 and rescaling up to 0.02 lie within 0.1 of the published numbers, and rescaling passes "
        "the baseline by far, as published. Not reached by anything: the baseline at 0.05 and 0.1 (0.52 and 0.12 "
        "against 0.77 and 0.59), and LW at small penalties (0.45 against 0.82 at 0.005; at 0.05 it has 0.97).",
    ),
)

EXPERIMENTS = (table_1, table_1_open, table_5, table_5_open)
