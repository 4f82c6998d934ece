"""Works out each kind of edit on the nouns, a file a kind; ``apply_edits.apply`` calls the one that is needed."""
