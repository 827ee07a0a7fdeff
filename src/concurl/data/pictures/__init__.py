"""A picture's bytes -> pixels: nothing about them is trusted."""
