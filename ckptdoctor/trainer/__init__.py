"""The built-in multi-GPU trainer: small networks, trained in every way that tutorials teach."""

import warnings

# torch says so where it cannot use the NumPy that is installed, in every process; nothing here needs it
warnings.filterwarnings("ignore", message="Failed to initialize NumPy", category=UserWarning)
