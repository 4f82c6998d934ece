"""O: states of optimizers, and whether they belong to the weights."""
