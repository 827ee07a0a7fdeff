"""A run's result in forms that other tools read."""
