"""What a person sees of a run: bars, a curve, metrics.jsonl and curves.html."""
