"""Escapes text from a file wherever something is shown: the function itself is in a room that all may ask."""

from __future__ import annotations

from ckptdoctor.escape import escape as escape
from ckptdoctor.escape import no_command as no_command
