"""Reports to people and programs: one renderer a file turns the nouns into text, JSON, SARIF, Markdown or HTML."""
