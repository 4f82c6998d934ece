"""Files of llama.cpp."""
