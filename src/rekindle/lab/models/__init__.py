"""The papers' networks in plain PyTorch, one file each."""

from rekindle.lab.models.all_cnn import AllCNN
from rekindle.lab.models.catalog import build
from rekindle.lab.models.cnn import CNN, CNN_BN
from rekindle.lab.models.gpt import GPT
from rekindle.lab.models.mlp import MLP
from rekindle.lab.models.mobilenet import MobileNetV1
from rekindle.lab.models.nature_cnn import NatureCNN
from rekindle.lab.models.resnet import BasicBlock, Bottleneck, ResNet, ResNet18, ResNet50
from rekindle.lab.models.scnn import SCNN
from rekindle.lab.models.simba import RunningNorm, SimBa, simba_actor, simba_critic
from rekindle.lab.models.vgg import VGG, VGG16
from rekindle.lab.models.vit import ViT, vit_tiny

__all__ = [
    "CNN",
    "CNN_BN",
    "GPT",
    "MLP",
    "SCNN",
    "VGG",
    "VGG16",
    "AllCNN",
    "BasicBlock",
    "Bottleneck",
    "MobileNetV1",
    "NatureCNN",
    "ResNet",
    "ResNet18",
    "ResNet50",
    "RunningNorm",
    "SimBa",
    "ViT",
    "build",
    "simba_actor",
    "simba_critic",
    "vit_tiny",
]
