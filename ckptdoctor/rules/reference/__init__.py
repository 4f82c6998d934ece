"""R: what does not fit a reference, and no narrower rule explains."""

# those that judge a file by itself; the others are only imported where there is a reference to hold it against
ALONE: tuple[str, ...] = ()
