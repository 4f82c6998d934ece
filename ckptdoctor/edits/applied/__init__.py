"""Each kind of edit worked out on the nouns, a file a kind; ``apply_edits.apply`` calls the one that an edit needs."""
