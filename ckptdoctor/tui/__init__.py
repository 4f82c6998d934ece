"""The browser, drawn with Textual: the same rules and the same events as the command line, looked at at leisure."""
