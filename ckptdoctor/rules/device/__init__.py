"""D: device tags."""
