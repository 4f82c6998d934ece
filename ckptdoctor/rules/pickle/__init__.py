"""P: what the pickle names, and whether it can be trusted."""
