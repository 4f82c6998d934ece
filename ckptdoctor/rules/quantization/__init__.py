"""Q: quantised weights."""
