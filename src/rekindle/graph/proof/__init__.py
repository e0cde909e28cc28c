"""Behind `verify`: a group of units is tried on the model itself, on the part of it that the group is in."""
