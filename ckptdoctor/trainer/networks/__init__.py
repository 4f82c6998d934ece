"""The networks that are trained, each a few lines of torch.nn."""
