"""The built-in multi-GPU trainer: small networks, trained in every way that tutorials teach."""
