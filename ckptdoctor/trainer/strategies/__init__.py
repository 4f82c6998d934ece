"""The ways of training one network on many devices."""
