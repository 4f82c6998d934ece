"""Layouts held against the libraries that own them: torchtune, timm, OpenCLIP, OpenAI's Whisper, Keras.

They are not in the test extra: ``pip install -c constraints.txt -e '.[oracles]'`` installs them, and a test whose
library is not there is skipped. ``frozen`` holds small files of some of them, which ``test_frozen`` asks in every run.
"""
