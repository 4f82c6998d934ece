"""P: names in the pickle, and whether to trust them."""
