"""Starting the processes of a run, joining them into one world, and ending them together."""
