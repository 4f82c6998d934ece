"""A repair: what was asked becomes steps, a plan, an output, and a proof of it."""
