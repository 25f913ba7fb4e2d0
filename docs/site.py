"""Hooks of the documentation site: files of the repository outside this folder that pages link to become part of the site.

The site has no repository to link to, and a reader of the site has no clone.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?!\w+:)(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
HOME = {"README.md": "index.md"}
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "apps/adreel/README.md": "adreel.md",
    "apps/tonearm/README.md": "tonearm.md",
    "apps/tonearm/docs/tags.md": "tonearm-tags.md",
}
"""Pages of the site that have their source outside the folder of the documentation."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages and files outside the folder that pages of the site link to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for page in list(files.documentation_pages()):
        for link in LINK.finditer(FENCE.sub("", page.content_string)):
            target = _target(page.src_uri, link["target"])
            if target is not None and target.is_file() and _uri(target) not in files.src_uris:
                files.append(File.generated(config, _uri(target), abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links to the places that files have in the site; a link to a folder becomes its text."""

    def replaced(link: re.Match[str]) -> str:
        target = _target(page.file.src_uri, link["target"])
        if target is None:
            return link[0]
        if target.is_dir():
            return link["text"].lstrip("!")[1:-1]
        place = os.path.relpath(_uri(target), Path(page.file.src_uri).parent)
        return f"{link['text']}({place}{link['anchor'] or ''})"

    code = list(FENCE.finditer(markdown))
    inside = [(each.start(), each.end()) for each in code]
    return LINK.sub(lambda link: link[0] if any(a <= link.start() < b for a, b in inside) else replaced(link), markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Writes llms.txt, an index of the pages in Markdown, and llms-full.txt, the text of those in the navigation."""
    parts = [f"# {config.site_name}", f"> {config.site_description}"]
    whole: list[str] = []
    for section, pages in _pages(config.nav or []):
        parts.append(f"## {section}")
        parts.append("\n".join(f"- [{title}]({_address(page)})" for title, page in pages))
        whole += [_text(page) for _, page in pages]
    site = Path(config.site_dir)
    (site / "llms.txt").write_text("\n\n".join([*parts, ""]))
    (site / "llms-full.txt").write_text("\n\n".join(whole))


def _pages(nav: list[dict[str, Any]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields each top part of the navigation with its pages: their titles and files."""

    def below(entries: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
        for entry in entries:
            for title, found in entry.items():
                if isinstance(found, str):
                    yield title, found
                else:
                    yield from below(found)

    for entry in nav:
        for title, found in entry.items():
            yield title, [(title, found)] if isinstance(found, str) else list(below(found))


def _address(page: str) -> str:
    """Returns the relative address of a page of the site."""
    if page == "index.md":
        return "./"
    return f"{page.removesuffix('.md').removesuffix('/README')}/"


def _text(page: str) -> str:
    """Returns the source of a page."""
    source = next((source for source, name in PAGES.items() if name == page), f"docs/{page}")
    return (ROOT / source).read_text()


def _target(page: str, link: str) -> Path | None:
    """Returns the file of the repository that a link of a page names."""
    here = next((ROOT / source for source, name in PAGES.items() if name == page), ROOT / "docs" / page)
    found = Path(os.path.normpath(here.parent / link))
    return found if found.is_relative_to(ROOT) and found.exists() else None


def _uri(file: Path) -> str:
    """Returns the place of a file of the repository in the site."""
    if file.is_relative_to(ROOT / "docs"):
        return str(file.relative_to(ROOT / "docs"))
    name = str(file.relative_to(ROOT))
    return (HOME | PAGES).get(name, f"repository/{name}".replace("/.", "/"))  # files with a dot are left out
