"""The data sets: where each comes from, and how batches are made of them."""
