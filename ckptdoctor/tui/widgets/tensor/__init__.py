"""What shows the values of one tensor: a grid of numbers, how they are distributed, a heatmap, and the extremes."""
