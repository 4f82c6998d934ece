"""Numbers of one dtype as those of another: cast, what that loses, and whether it is right; NumPy computes."""
