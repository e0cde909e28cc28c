"""Data sets: uint8 images and labels in, tensors out."""
