"""R: what does not fit a reference, and no narrower rule explains."""
