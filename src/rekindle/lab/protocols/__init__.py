"""What is trained on what, in which order: `protocol("warm_start:fraction=0.1")` yields its stages."""

from rekindle.lab.protocols.catalog import protocol
from rekindle.lab.protocols.learning_path import LearningPath

__all__ = ["LearningPath", "protocol"]
