"""The papers' settings as runs: protocol, data, network, optimizer, and the best value of each method.

FIRE (F): E.1 and Tables 6 to 9; E.2 and Table 10 are in `presets_language`. Soft weight rescaling (S): 4.1 to 4.3 and
Table 4; Tables 2 and 3 are not in it, because our copy of them cannot be read. Frozen weights (Z): 6.5 and Tables 6 to
8. Layerwise reinitialization (L): 1.1, C. The rows that start from ImageNet want a folder `imagenet` in the cache:
there are no pretrained weights here. Of their augmentations (KMNIST, EMNIST, Patch Camelyon) only what the run's
`augment` says is done.
"""

from __future__ import annotations

from typing import Any

from rekindle.errors import SettingsError
from rekindle.lab.runs.presets_language import LANGUAGE_BEST, LANGUAGE_RUNS

Fields = dict[str, Any]

FIRE: Fields = {"optimizer": "adam:lr=1e-3", "batch_size": 256, "clip": 0.5, "warmup": 0.1}
RESCALING: Fields = {"optimizer": "adam:lr=1e-3", "batch_size": 256}
LAYERWISE: Fields = {"optimizer": "sgd:lr=0.003,momentum=0.9,weight_decay=1e-5", "batch_size": 256}
# L, 3.1 and App. C: name, network, blocks.
LAYERWISE_NETWORKS = (
    ("scnn", "scnn:init=he", 4),
    ("mobilenet", "mobilenet:shallow=true,norm=layer,init=he", 7),
    ("vgg16", "vgg16:norm=layer,init=he", 13),
    ("resnet50", "resnet50:norm=layer,init=he", 16),
)
FROZEN: Fields = {"optimizer": "sgd:lr=0.05,momentum=0.9,weight_decay=0.001"}

_FIRE_DATA = {
    "cifar10": {"data": "cifar10", "model": "resnet18"},
    "cifar100": {"data": "cifar100", "model": "vit"},
    "tiny_imagenet": {"data": "tiny_imagenet", "model": "vgg16"},
}
_FIRE_PROTOCOLS = {
    "warm_start": "warm_start:fraction=0.1,before=1000,after=100",
    "continual": "continual:chunks=10,access=full,epochs=100",
    "class_incremental": "class_incremental:phases=20,epochs=100",
}
_RESCALING_DATA = {
    "mnist": {"data": "mnist", "model": "mlp"},
    "cifar10": {"data": "cifar10", "model": "cnn"},
    "cifar100": {"data": "cifar100", "model": "cnn"},
    "cifar100_bn": {"data": "cifar100", "model": "cnn_bn"},
    "tiny_imagenet": {"data": "tiny_imagenet", "model": "vgg16"},
}
_RESCALING_PROTOCOLS = {
    "warm_start": "warm_start:fraction=0.5,before=100,after=100",
    "continual": "continual:chunks=10,access=full,epochs=100",
    "limited": "continual:chunks=10,access=limited,epochs=100",
    "generalization": "generalization:epochs=200",
    "decay": "generalization:epochs=200,decay=true",
    "decay_rebase": "generalization:epochs=200,decay=true,rebase=true",
}
_PAIR = "learning_rate=0.05,decay={decay},weight_decay=0.001,patience={patience},epochs=200"
_FINE = "learning_rate=0.003,decay=0.97,weight_decay=0.001,patience={patience},epochs=150"
# Table 6: row, named as the preset of dirac_reset -> data, network, what changes, decay, patience.
_FROM_SCRATCH = {
    "cifar10_blurred_to_sharp_resnet18": ("cifar10", "resnet18", "change=blur", 0.95, 40),
    "cifar10_blurred_to_sharp_all_cnn": ("cifar10", "all_cnn", "change=blur", 0.97, 40),
    "cifar10_to_random_shift": ("cifar10", "resnet18", "second_augment=shift:size=1", 0.95, 60),
    "cifar10_to_cifar100": (
        "cifar10",
        "resnet18",
        "to=cifar100,augment=shift:size=0.5,second_augment=shift:size=0.5",
        0.95,
        40,
    ),
    "cifar10_to_fashion_mnist": ("cifar10", "resnet18", "to=fashion_mnist", 0.95, 40),
    "mnist_to_fashion_mnist": ("mnist", "resnet18", "to=fashion_mnist", 0.95, 40),
    "svhn_to_cifar10": ("svhn", "resnet18", "to=cifar10,second_patience=40,second_epochs=200", 0.95, 20),
}
# Tables 7 and 8: row -> data of task B, patience, and learning rate and decay with the intervention.
_FROM_IMAGENET = {
    "imagenet_to_fashion_mnist": ("fashion_mnist", 20, 0.05, 0.93),
    "imagenet_to_kmnist": ("kmnist", 25, 0.003, 0.98),
    "imagenet_to_emnist_letters": ("emnist_letters", 10, 0.003, 0.97),
    "imagenet_to_cifar100": ("cifar100", 20, 0.01, 0.95),
    "imagenet_to_resisc45": ("resisc45", 20, 0.003, 0.98),
    "imagenet_to_patch_camelyon": ("patch_camelyon", 20, 0.05, 0.93),
}


def _task_changes() -> dict[str, Fields]:
    made: dict[str, Fields] = {}
    for row, (data, model, change, decay, patience) in _FROM_SCRATCH.items():
        epochs = "epochs=100" if row == "svhn_to_cifar10" else "epochs=200"
        rest = _PAIR.format(decay=decay, patience=patience).replace("epochs=200", epochs)
        made[f"frozen.{row}"] = {**FROZEN, "protocol": f"task_change:{change},{rest}", "data": data, "model": model}
    for row, (second, patience, rate, decay) in _FROM_IMAGENET.items():
        fine = _FINE.format(patience=patience)
        fields = {**FROZEN, "data": "imagenet", "model": "resnet50"}
        treated = f"second_learning_rate={rate},second_decay={decay}"
        made[f"frozen.{row}"] = {**fields, "protocol": f"task_change:to={second},{fine}"}
        made[f"frozen.{row}.treated"] = {**fields, "protocol": f"task_change:to={second},{fine},{treated}"}
    return made


def _all() -> dict[str, Fields]:
    made: dict[str, Fields] = {}
    for path, protocol in _FIRE_PROTOCOLS.items():
        for name, what in _FIRE_DATA.items():
            if (path, name) != ("class_incremental", "cifar10"):  # too few classes
                made[f"fire.{path}.{name}"] = {**FIRE, "protocol": protocol, **what}
    for path, protocol in _RESCALING_PROTOCOLS.items():
        for name, what in _RESCALING_DATA.items():
            made[f"rescaling.{path}.{name}"] = {**RESCALING, "protocol": protocol, **what}
    for signal in ("0.5", "1", "2"):
        synthetic = {"data": f"synthetic:signal={signal}", "model": "mlp_synthetic", "optimizer": "sgd:lr=0.05"}
        protocol = "rounds:blocks=3,repeats=3,steps=200"
        made[f"layerwise.synthetic.{signal}"] = {**synthetic, "protocol": protocol, "batch_size": 256}
    for name, model, blocks in LAYERWISE_NETWORKS:
        protocol = f"rounds:blocks={blocks},repeats=1,steps=100000,validation=0.1"
        made[f"layerwise.oxford_pets.{name}"] = {
            **LAYERWISE,
            "protocol": protocol,
            "data": "oxford_pets",
            "model": model,
        }
    return made | _task_changes() | LANGUAGE_RUNS


RUNS: dict[str, Fields] = _all()

# F, Table 6: every value that was tried.
SEARCHED: dict[str, tuple[str, ...]] = {
    "shrink_perturb": tuple(f"shrink_perturb:shrink={v}" for v in (0.2, 0.4, 0.6, 0.8)),
    "dash": tuple(f"dash:alpha={a},floor={f}" for a in (0.1, 0.3) for f in (0.05, 0.1, 0.3)),
    "parseval": tuple(f"parseval:strength={v}" for v in ("1e-3", "1e-4", "1e-5")),
    "cbp": tuple(f"cbp:rate={r},maturity={m}" for r in ("1e-4", "1e-5") for m in (100, 1000)),
    "redo": tuple(f"redo:threshold={v}" for v in (0.01, 0.05, 0.1, 0.5)),
    "l2_init": tuple(f"l2_init:strength={v},form=full" for v in ("1e-3", "1e-4", "1e-5")),
    "snr": tuple(f"snr:threshold={v}" for v in (0.01, 0.02, 0.04, 0.08)),
}
# F, Tables 7 to 9: DASH alpha and lambda, Parseval, CBP rate and maturity, ReDo, L2 Init, SNR. S&P is 0.8, FIRE 10.
_BEST = {
    "fire.warm_start.cifar10": (0.3, 0.05, "1e-3", "1e-4", 1000, 0.5, "1e-3", 0.01),
    "fire.warm_start.cifar100": (0.1, 0.05, "1e-5", "1e-4", 100, 0.5, "1e-3", 0.01),
    "fire.warm_start.tiny_imagenet": (0.1, 0.05, "1e-3", "1e-4", 1000, 0.5, "1e-3", 0.08),
    "fire.continual.cifar10": (0.3, 0.05, "1e-3", "1e-5", 1000, 0.05, "1e-5", 0.08),
    "fire.continual.cifar100": (0.1, 0.05, "1e-5", "1e-5", 1000, 0.01, "1e-4", 0.04),
    "fire.continual.tiny_imagenet": (0.1, 0.1, "1e-4", "1e-5", 1000, 0.01, "1e-5", 0.01),
    "fire.class_incremental.cifar100": (0.3, 0.3, "1e-5", "1e-5", 1000, 0.01, "1e-5", 0.08),
    "fire.class_incremental.tiny_imagenet": (0.3, 0.1, "1e-3", "1e-4", 1000, 0.05, "1e-4", 0.02),
}


def _best_of_fire(alpha: float, floor: float, *rest: Any) -> dict[str, str]:
    parseval, rate, maturity, redo, l2_init, snr = rest
    return {
        "fire": "fire:preset=paper",
        "shrink_perturb": "shrink_perturb:shrink=0.8",
        "dash": f"dash:alpha={alpha},floor={floor}",
        "parseval": f"parseval:strength={parseval}",
        "cbp": f"cbp:rate={rate},maturity={maturity}",
        "redo": f"redo:threshold={redo}",
        "l2_init": f"l2_init:strength={l2_init},form=full",
        "snr": f"snr:threshold={snr}",
    }


def _best_of_rescaling(l2: str, swr: str) -> dict[str, str]:
    return {"l2": f"l2:strength={l2}", "l2_init": f"l2_init:strength={l2},form=half", "soft_rescale": swr}


def _two_strengths(features: str, classifier: str) -> str:
    return f"soft_rescale:strength_features={features},strength_classifier={classifier}"


_THREE_BLOCKS = "layerwise:blocks=layers.0|layers.1|layers.2"

# The best values of each method, by run and method.
BEST: dict[str, dict[str, str]] = {name: _best_of_fire(*values) for name, values in _BEST.items()} | {
    # F, Table 10
    **LANGUAGE_BEST,
    # S, Table 4
    "rescaling.generalization.mnist": _best_of_rescaling("1e-5", "soft_rescale:strength=1e-4"),
    "rescaling.generalization.cifar10": _best_of_rescaling("1e-2", "soft_rescale:strength=1e-3"),
    "rescaling.generalization.cifar100": _best_of_rescaling("1e-2", "soft_rescale:strength=1e-3"),
    "rescaling.generalization.cifar100_bn": _best_of_rescaling("1e-2", _two_strengths("1e-4", "1e-1")),
    "rescaling.generalization.tiny_imagenet": _best_of_rescaling("1e-5", _two_strengths("1e-2", "1e-1")),
    # L, 1.1: every layer is a block, the last one too
    **{f"layerwise.synthetic.{signal}": {"layerwise": _THREE_BLOCKS} for signal in ("0.5", "1", "2")},
    # Z, Tables 6 to 8
    **{
        name: {"dirac_reset": f"dirac_reset:preset={name.split('.')[1]}"} for name in RUNS if name.startswith("frozen.")
    },
}


def preset(name: str, method: str = "none") -> Fields:
    """Return the fields of a run as in a paper, with a method at its best value there, or at its defaults.

    Args:
        name: Such as "fire.warm_start.cifar10"; see `RUNS`.
        method: Key of a method, or a spec string of your own.

    Raises:
        SettingsError: There is no such preset.

    Example:
        >>> preset("fire.warm_start.cifar10", "redo")["methods"]
        'redo:threshold=0.5'
    """
    if name not in RUNS:
        raise SettingsError(expected=f"a preset: {', '.join(RUNS)}", got=repr(name), fix="use one of the names above")
    return {**RUNS[name], "methods": BEST.get(name, {}).get(method, method)}
