"""What rules of several families share: words, renames, repairs and where they are offered."""
