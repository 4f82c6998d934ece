"""A person sees this of a run: bars, a curve, metrics.jsonl and curves.html."""
