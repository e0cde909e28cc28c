"""One-shot methods, one file each; the registry finds them by file name."""
