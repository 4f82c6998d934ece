"""torch, safetensors and the libraries around them say something when a checkpoint does not load; this explains it."""
