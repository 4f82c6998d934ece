"""One rule, its fix, its page and its examples per file, in family folders. ``rules.registry`` finds them."""
