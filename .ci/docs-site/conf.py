# Sphinx makes a site of README.md and docs/: make docs-site. A broken link is an error.
import pathlib
import re
import shutil

root = pathlib.Path(__file__).resolve().parents[2]
github = "https://github.com/slidegate/slidegate/blob/main/"

project = "Slidegate"
author = ""
html_show_copyright = False
extensions = ["myst_parser"]
include_patterns = ["README.md", "docs/**.md"]
exclude_patterns = [".*", "bin", "cmd", "contrib", "deploy", "dist", "internal", "pkg", "site", "test"]  # not read
root_doc = "README"
myst_heading_anchors = 6  # the anchors of GitHub
html_theme = "furo"  # light and dark, as the browser says
html_title = "Slidegate"
html_favicon = "../../internal/operate/console/icon.svg"
html_show_sourcelink = False
# It finds no lexer for these, or not all their words.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]

# The pages on the left.
menu = {
    "Begin": ["start", "migrate", "kubernetes"],
    "Write limits": ["limits", "advanced", "customers", "rollout"],
    "Run it": ["operate", "guarantees", "security"],
    "Programs": ["clients", "library"],
    "Reference": ["reference/*"],
    "Contribute": ["architecture", "adr/README", "adr/*"],
}


def toctrees():
    text = ""
    for caption, pages in menu.items():
        text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n:glob:\n:maxdepth: 1\n\n"
        text += "".join(f"docs/{page}\n" for page in pages) + "```\n"
    return text


def read(app, name, content):
    """Sends links to files that are no pages of the site to GitHub, and adds the menu."""
    here = (root / name).parent

    def link(match):
        target, anchor = match[2], match[3] or ""
        path = (here / target).resolve()
        inside = path.relative_to(root) if path.is_relative_to(root) else None
        if not target or inside is None or match[1] == "!":
            return match[0]
        if inside.suffix == ".md" and (str(inside) == "README.md" or inside.parts[0] == "docs"):
            return match[0]
        return f"{match[1]}[{match[4]}]({github}{inside}{anchor})" if path.exists() else match[0]

    text = re.sub(r"(!?)\[(?P<t>[^\]]*)\]\((?P<u>[^)#:\s]*)(?P<a>#[^)\s]*)?\)",
                  lambda m: link([m[0], m[1], m["u"], m["a"], m["t"]]), content[0])
    content[0] = text + (toctrees() if name == "README" else "")


def finish(app, failure):
    if failure is None:
        shutil.copy(pathlib.Path(app.outdir) / "README.html", pathlib.Path(app.outdir) / "index.html")


def setup(app):
    app.connect("source-read", read)
    app.connect("build-finished", finish)
