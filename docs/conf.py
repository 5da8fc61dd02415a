"""The documentation's site: ``make docs`` builds it, strictly, into docs/_build/html.

The pages are those of this folder, readable on their own. What the site has beyond them is made by
``sphinx_site``: pages of every public name and command, copies of the repository's other pages, and
the contents, which are read from the tables of index.md.
"""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "zerosum"
author = "The zerosum developers"
copyright = author
release = version = version_of("zerosum")

root_doc = "index"
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "sphinx_site"]
extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_site",
]

nitpicky = True
# Without it the domain of Python guesses: the only Session there is, whoever was meant.
python_use_unqualified_type_names = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "show-inheritance": False}
# Contents of a class by numpydoc are a second list of what autodoc lists in full.
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Anchors of headings are GitHub's: links work in both.
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
myst_all_links_external = False
suppress_warnings = [
    "myst.header",  # README.md begins a chapter without the heading above it
    "config.cache",  # functions in this file cannot be pickled, and need not
]

# Every tutorial runs at every build, from nothing. An error in one is a warning with its traceback,
# and a warning fails the build (-W) once all have run.
nb_execution_mode = "force"
nb_execution_show_tb = True
nb_execution_timeout = 300
nb_execution_in_temp = True
nb_merge_streams = True

html_theme = "furo"
pygments_dark_style = "a11y-high-contrast-dark"
html_title = "zerosum"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
