"""One rule, its cure, its page and its examples per file, in family folders. ``rules.registry`` finds them."""
