"""The papers' networks in plain PyTorch, one file each."""

from rekindle.models.all_cnn import AllCNN
from rekindle.models.catalogue import build
from rekindle.models.cnn import CNN, CNN_BN
from rekindle.models.gpt import GPT
from rekindle.models.mlp import MLP
from rekindle.models.mobilenet import MobileNetV1
from rekindle.models.nature_cnn import NatureCNN
from rekindle.models.resnet import BasicBlock, Bottleneck, ResNet, ResNet18, ResNet50
from rekindle.models.scnn import SCNN
from rekindle.models.simba import RunningNorm, SimBa, simba_actor, simba_critic
from rekindle.models.vgg import VGG, VGG16
from rekindle.models.vit import ViT, vit_tiny

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
