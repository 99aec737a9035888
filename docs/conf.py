"""Sphinx configuration. Building needs no network."""

from __future__ import annotations

import kernelweave

project = "kernelweave"
author = "The kernelweave developers"
copyright = "2026, The kernelweave developers"
version = release = kernelweave.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "**/README.md", "gallery/**/*.ipynb", "gallery/**/*.py"]
templates_path = ["_templates"]
# A reference to a name of ours that does not exist is a warning, and warnings fail the build; so is
# one to a library whose names we know.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!kernelweave\.|sklearn\.|scipy\.).*")]
suppress_warnings = ["config.cache"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_validation_checks: set[str] = set()

# Links lead to the newest pages; which names there are is in files of our own, because a build
# must not need the network (inventories/reduce.py makes them).
intersphinx_mapping = {
    project: (pages, f"inventories/{project}.inv")
    for project, pages in {
        "python": "https://docs.python.org/3",
        "numpy": "https://numpy.org/doc/stable",
        "scipy": "https://docs.scipy.org/doc/scipy",
        "scikit-learn": "https://scikit-learn.org/stable",
        "pandas": "https://pandas.pydata.org/docs",
        "matplotlib": "https://matplotlib.org/stable",
    }.items()
}

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "show_memory": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "kernelweave"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sourcelink = False
# Pages without a section of their own have nothing to show on the left.
html_sidebars: dict[str, list[str]] = {
    page: []
    for page in (
        *("index", "getting_started", "faq", "coming_from", "extending", "architecture"),
        *("equations", "glossary", "dependencies", "contributing", "changelog"),
    )
}
html_theme_options = {
    "show_toc_level": 2,
    "header_links_before_dropdown": 5,
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
