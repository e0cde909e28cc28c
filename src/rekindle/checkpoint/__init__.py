"""Checkpoints on disk: read tensor by tensor."""
