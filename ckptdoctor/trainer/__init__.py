"""The built-in multi-GPU trainer: small networks, trained in every way that tutorials teach."""

import warnings

# torch says so where NumPy is not installed, in every process; nothing here needs it
warnings.filterwarnings("ignore", message="Failed to initialize NumPy", category=UserWarning)
