"""What rules ask of a checkpoint, worked out once and only when asked for."""
