"""How the documentation is built: Sphinx with MyST, in the theme Furo. Nothing is loaded from the network."""

project = "ckptdoctor"
author = "The ckptdoctor authors"
copyright = author
html_title = "ckptdoctor"

extensions = ["myst_parser"]
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
exclude_patterns = ["conf.py"]
highlight_language = "text"
smartquotes = False  # "--" and quotes are what people type
# pages of rules and messages are reached from their tables: two lists of hundreds of links would be on every page
suppress_warnings = ["toc.not_included"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
