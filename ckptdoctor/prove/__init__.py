"""Proves an output: that its contents are those wanted, and that its bytes come from where they must."""
