"""Rules of several families share words, renames, repairs, and where those are offered."""
