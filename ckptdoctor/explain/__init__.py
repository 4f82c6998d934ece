"""What torch, safetensors and the libraries around them say when a checkpoint does not load, and what it means."""
