"""The papers' networks in plain PyTorch, one file each."""

from rekindle.models.cnn import CNN, CNN_BN
from rekindle.models.gpt import GPT
from rekindle.models.mlp import MLP
from rekindle.models.mobilenet import MobileNetV1
from rekindle.models.resnet import BasicBlock, Bottleneck, ResNet, ResNet18, ResNet50
from rekindle.models.vgg import VGG, VGG16
from rekindle.models.vit import ViT, vit_tiny

__all__ = [
    "CNN",
    "CNN_BN",
    "GPT",
    "MLP",
    "VGG",
    "VGG16",
    "BasicBlock",
    "Bottleneck",
    "MobileNetV1",
    "ResNet",
    "ResNet18",
    "ResNet50",
    "ViT",
    "vit_tiny",
]
