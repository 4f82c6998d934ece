"""Facts are what several rules or rooms ask of a checkpoint, each worked out once and only when it is asked for."""
