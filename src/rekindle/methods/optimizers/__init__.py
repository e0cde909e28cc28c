"""Methods that are optimizers, one file each; the registry finds them by file name."""
