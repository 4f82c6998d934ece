"""Changes what pickles of torch say: the graph is edited until it holds what is wanted, and nothing else differs."""
