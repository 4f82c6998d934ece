"""What the browser shows, as plain data: nothing here knows of Textual, and everything copes with 500,000 tensors."""
