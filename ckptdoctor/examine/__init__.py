"""Opens, reads and judges whole files, with what would really work of what the rules advise."""
