"""What is done with checkpoints: examine, plan, repair. Command line, browser and Python all call this."""
