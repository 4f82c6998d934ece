"""Changes files where they are, so that no crash can hurt them and every change can be taken back."""
