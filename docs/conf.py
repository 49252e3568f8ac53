"""Configuration of the documentation."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from nbclient import NotebookClient
from pages import cli_page

from hepcache import __version__

project = "hepcache"
copyright = "the hepcache developers"
release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "numpydoc"]
html_theme = "furo"
exclude_patterns = ["_build", "examples"]
numpydoc_show_class_members = False
autodoc_typehints = "none"
# Links to sections are checked with all the others, since warnings are errors.
myst_heading_anchors = 3

# Figures are made here and now. What needs a pool is shown as `make recorded` recorded it.
nb_execution_mode = "force"
nb_execution_excludepatterns = ["notebooks/htcondor.ipynb"]
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True
# Bars that have come and gone are of no use on a page.
nb_mime_priority_overrides = [
    ("html", "application/vnd.jupyter.widget-view+json", None),
    ("html", "text/html", 0),
]
# A kernel starts slowly on a busy machine.
NotebookClient.startup_timeout.default_value = 300
_home = tempfile.mkdtemp(prefix="hepcache-docs-")
os.environ["XDG_CACHE_HOME"] = _home
os.environ["TMPDIR"] = _home


def _generate(app):
    (HERE / "cli.md").write_text(cli_page())
    # Sphinx reads below its own directory only; notebooks find the examples beside theirs.
    (HERE / "notebooks").mkdir(exist_ok=True)
    for notebook in (HERE.parent / "notebooks").glob("*.ipynb"):
        shutil.copy2(notebook, HERE / "notebooks")
    if not (HERE / "examples").exists():
        (HERE / "examples").symlink_to("../examples")


def _notebook_links(app, name, source):
    # In the repository notebooks are beside docs, not below.
    source[0] = source[0].replace("](../notebooks/", "](notebooks/")


def setup(app):
    app.connect("builder-inited", _generate)
    app.connect("source-read", _notebook_links)
