"""The pages of the documentation that come from the code: commands, rules, and the messages of other programs."""
