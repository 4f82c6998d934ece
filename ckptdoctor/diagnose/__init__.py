"""What the rules find in what was read, and the words in which an examination is asked for and told."""
