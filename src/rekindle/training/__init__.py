"""The one plain training loop, for comparisons, the trainability probe and protocols."""
