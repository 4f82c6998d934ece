"""The contents of the browser as plain data: nothing here knows of Textual, and all copes with 500,000 tensors."""
