"""What is trained on what, in which order."""
