"""Reports to people and programs: from the nouns to text, one renderer per file."""
