"""R: misfits with a target that no narrower rule explains."""
