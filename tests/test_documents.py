"""Tests that commands, make targets, links and file paths in the documentation exist."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from chargehand import CrewOptions, JobOptions
from chargehand.cli.main import app
from chargehand.live.bodies import FlowBody, HealthBody, JobBody, NodeBody, QueueBody, WorkerBody

ROOT = Path(__file__).parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "apps").rglob("*.md")),
)


def test_the_reference_is_what_the_code_says() -> None:  # spec: SV-4 WP-8 RP-8
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_of_events_has_every_field_of_every_body() -> None:  # spec: EV-3
    text = (ROOT / "docs" / "events.md").read_text()
    bodies = {
        "worker": WorkerBody, "job": JobBody, "queue": QueueBody, "flow": FlowBody, "node": NodeBody,
        "health": HealthBody,
    }  # fmt: skip
    for name, body in bodies.items():
        (row,) = re.findall(rf"^\| `{name}` \| .*`.*$", text.partition("| body | fields |")[2], re.MULTILINE)
        missing = [field for field in body.__struct_fields__ if f"`{field}`" not in row]
        assert missing == [], name


def test_every_make_target_and_command_that_the_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {group.name for group in app.registered_groups if group.name}
    for page in PAGES:
        text = page.read_text()
        named = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE))
        assert named <= targets, page
        called = set(re.findall(r"(?:`|^)chargehand ([a-z]+)", text, re.MULTILINE))
        assert called <= commands, page


def test_every_link_and_source_path_that_the_documents_name_exists() -> None:
    for page in PAGES:
        text = page.read_text()
        links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text)
        assert [link for link in links if not (page.parent / link).exists()] == [], page
        roots = (ROOT, ROOT / "apps" / "tonearm", ROOT / "apps" / "adreel")
        paths = re.findall(r"\b((?:src|tests|bench|chaos|examples|apps)/[\w/.-]*\w)", text)
        assert [path for path in paths if not any((at / path).exists() for at in roots) and "NNNN" not in path] == [], (
            page
        )


def test_every_module_that_the_documents_name_exists() -> None:
    for page in PAGES:
        for name in re.findall(r"python -m (\w[\w.]*)", page.read_text()):
            assert importlib.util.find_spec(name), (page, name)


def test_the_documents_have_one_configuration_of_nginx_and_it_keeps_the_port() -> None:
    """$host has no port, and a sign-in compares the Host header with the Origin, which has one."""
    blocks = [block for page in PAGES for block in re.findall(r"```nginx\n(.*?)```", page.read_text(), re.DOTALL)]
    assert len(blocks) == 1
    assert "proxy_set_header Host $http_host;" in blocks[0]


def test_lists_of_the_files_of_a_store_are_complete() -> None:
    beside = (ROOT / "src" / "chargehand" / "stores" / "beside.py").read_text()
    names = {"-wal", "-shm", *re.findall(r'_beside\("(-\w+)"\)', beside)}
    assert len(names) > 2
    for page, heading in (("operations.md", "## Files of the store"), ("security.md", "## Files")):
        _, _, rest = (ROOT / "docs" / page).read_text().partition(f"\n{heading}\n")
        assert names <= set(re.findall(r"`(-\w+)`", rest.partition("\n## ")[0])), page


def test_the_documents_say_how_a_clone_is_installed() -> None:
    """Every page with the command that installs the package from an index also has the one for a clone."""
    for page in (*PAGES, ROOT / "src" / "chargehand" / "cli" / "starter" / "README.md"):
        text = page.read_text()
        if "pip install 'chargehand[web,cli]'" in text:
            assert "[web,cli]'" in text.replace("'chargehand[web,cli]'", ""), page


def test_every_option_of_crews_and_jobs_is_on_its_page() -> None:
    page = (ROOT / "docs" / "options.md").read_text()
    listed = set(re.findall(r"`(\w+)`", page))
    assert {*CrewOptions.__annotations__, *JobOptions.__annotations__} <= listed


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_the_figures_of_the_readme_and_of_the_comparison_are_those_of_the_benchmarks() -> None:
    """Ranges such as 2.6 to 3.4; the page of the benchmarks has each of them."""

    def ranges(text: str) -> set[tuple[float, float]]:
        found = re.findall(r"([\d,]*\d(?:\.\d+)?)(?: to |–)([\d,]*\d(?:\.\d+)?)", text)
        return {(float(low.replace(",", "")), float(high.replace(",", ""))) for low, high in found}

    known = ranges((ROOT / "docs" / "benchmarks.md").read_text())
    known |= {(round(low, 1), round(high, 1)) for low, high in known}
    readme = (ROOT / "README.md").read_text().partition("\n- **No ack")[2].partition("\n**Use it**")[0]
    (promise,) = re.findall(r"`make bench`: .*", (ROOT / "docs" / "promises.md").read_text())[:1]
    rows = re.findall(r"^\|.*Chargehand.*$", (ROOT / "docs" / "comparison.md").read_text(), re.MULTILINE)
    ours = [re.split(r"Others|;", part)[0] for row in rows for part in row.split("Chargehand")[1:]]
    told = ranges(readme) | ranges(promise) | ranges(" ".join(ours))
    assert len(told) > 4
    assert told - known == set()


def test_every_section_that_a_link_names_exists() -> None:
    for page in PAGES:
        for link, anchor in re.findall(r"\]\((?!https?://)([^)#\s]*)#([^)\s]+)\)", page.read_text()):
            target = page.parent / link if link else page
            if target.suffix == ".png":
                continue  # for one of the two modes of the site: picture.png#only-light
            assert anchor in _sections(target), (page.name, link, anchor)


def _sections(page: Path) -> set[str]:
    """Returns the anchors of a page, as GitHub makes them of its headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", each).lower()).replace(" ", "-") for each in headings}
