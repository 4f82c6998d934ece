"""The browser, drawn with Textual: the same engine and the same events as the command line, looked at at leisure."""
