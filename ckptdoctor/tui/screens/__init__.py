"""What fills the terminal, one screen a file."""
