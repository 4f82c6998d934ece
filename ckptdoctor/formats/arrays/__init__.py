"""Reads files of NumPy: one array (``numpy.save``), and a zip archive of arrays (``numpy.savez``)."""
