"""A run from images to labels, and all that its folder holds."""
