"""Settings of the documentation site, which `make site` builds into build/site."""

import os
import shutil
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

import fedfv

HERE, BUILD = Path(__file__).parent, Path(__file__).parents[1] / "build"
sys.path[:0] = [str(HERE), str(HERE.parent)]

from _site import cells, links  # noqa: E402

from scripts.write_cli_page import cli_page  # noqa: E402
from scripts.write_schema_page import PAGES  # noqa: E402

repository = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
project = "fedfv"
author = "The fedfv authors"
project_copyright = "2026, The fedfv authors"
version = release = fedfv.__version__

extensions = [
    "myst_nb",  # Markdown, and tutorials that are executed
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["images", "_site"]
html_theme = "furo"
html_title = f"fedfv {release}"
html_static_path = ["images", "_site/static"]
html_css_files = ["site.css"]
html_extra_path = [str(BUILD / "extra")]  # what tutorials add
html_theme_options = {"source_repository": repository, "source_branch": "main", "source_directory": "docs/"}

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(BUILD / "notebooks")
nb_execution_in_temp = True
nb_execution_timeout = 240
nb_execution_raise_on_error = True
nb_merge_streams = True

default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_numpy_docstring = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

# Tutorials run the commands of this environment, and their output is as wide as a page.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["COLUMNS"] = "84"
os.environ["IPYTHONDIR"] = str(BUILD / "ipython")
os.environ["SITE"] = str(BUILD / "extra")


def setup(app: Sphinx) -> None:
    """Connects what the site has of its own."""
    startup = BUILD / "ipython" / "profile_default" / "startup"
    for folder in (startup, BUILD / "extra"):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "_site" / "kernel.py", startup / "kernel.py")
    pages = {"toml": PAGES["experiment"](), "study": PAGES["study"](), "commands": cli_page()}
    for name, text in pages.items():
        page = HERE / "reference" / f"{name}.md"
        if not page.exists() or page.read_text() != text:  # an unchanged page is not read again
            page.write_text(text)
    app.add_config_value("repository", repository, "env")
    app.connect("source-read", links.link_to_repository)
    app.connect("autodoc-process-docstring", links.without_substitutions)
    app.connect("doctree-read", cells.show_cells)
