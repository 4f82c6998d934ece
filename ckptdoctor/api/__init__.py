"""What ``import ckptdoctor`` offers: one function for each thing that people do from Python, named as its command is.

Arguments have the names of the command's options. Each function raises MissingPackageError, with the command that
installs it, where what it is asked for is done with torch, and torch is not installed.
"""
