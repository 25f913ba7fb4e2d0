"""Every code block of the README and of the documentation is executed, or says why not."""

import re
from contextlib import closing
from pathlib import Path

import pytest

import snippets

pytestmark = pytest.mark.full

ROOT = Path(__file__).parent.parent
STARTER = ROOT / "src" / "chargehand" / "cli" / "starter" / "README.md"
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    STARTER,
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "apps").rglob("*.md")),
)
LANGUAGES = {"", "console", "html", "ini", "js", "json", "nginx", "python", "sh", "sql", "toml", "yaml"}


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if "```" in page.read_text()], ids=_named)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = snippets.Run(page, tmp_path)
    with snippets.on_the_path(tmp_path), closing(run):
        for snippet in snippets.of_page(page):
            try:
                run.perform(snippet)
            except BaseException as error:
                error.add_note(f"in the code block at {page.name}:{snippet.line}")
                raise


def test_every_block_is_found_and_has_a_known_language() -> None:
    """A block that the pattern misses, or whose language nothing checks, would not be executed."""
    for page in PAGES:
        found = snippets.of_page(page)
        fences = re.findall(r"^ *```", page.read_text(), re.MULTILINE)
        assert len(fences) == 2 * len(found), page
        assert {each.language for each in found} <= LANGUAGES, page


def test_what_is_not_run_says_why() -> None:
    for page in PAGES:
        for snippet in snippets.of_page(page):
            if snippet.mark == "not run":
                assert len(snippet.said.split()) > 2, (page, snippet.line)
