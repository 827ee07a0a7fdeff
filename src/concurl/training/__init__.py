"""The training loop, its schedules, its checkpoints and its log."""
