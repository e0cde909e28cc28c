"""Pure mathematics on tensors: no modules, no names, no files."""
