"""Configuration of the documentation."""

from hepcache import __version__

project = "hepcache"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
html_theme = "furo"
exclude_patterns = ["_build"]
numpydoc_show_class_members = False
autodoc_typehints = "none"
