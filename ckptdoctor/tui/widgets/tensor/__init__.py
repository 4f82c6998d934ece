"""Draws the values of one tensor: a grid of numbers, their distribution, a heatmap, and the extremes."""
