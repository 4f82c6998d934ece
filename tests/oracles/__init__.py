"""Layouts held against the libraries that own them: torchtune, timm, OpenCLIP and OpenAI's Whisper.

They are not in the test extra: ``pip install -c constraints.txt -e '.[oracles]'`` installs them, and a test whose
library is not there is skipped.
"""
