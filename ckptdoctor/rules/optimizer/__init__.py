"""O: optimizer states, and whether they belong to the weights beside them."""
