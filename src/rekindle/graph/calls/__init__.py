"""What a model is called with, and what it hands back, in the forms in which people have them."""
