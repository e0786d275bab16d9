"""Papers are cited alike everywhere: by the venue, the year and the link of
`harness/published/papers.csv`."""

from __future__ import annotations

import csv
import re
import subprocess

from harness.claims.published import claims
from tests.harness.run_tools import REPOSITORY

FILE = REPOSITORY / "harness" / "published" / "papers.csv"
PLACES = [
    "README.md",
    "docs",
    "harness",
    "systems",
    "outcore",
    "benchmarks",
    "examples",
]


def papers() -> list[dict[str, str]]:
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_citation_has_the_venue_and_year_of_a_known_paper() -> None:
    known = {f"{paper['venue']} {paper['year']}" for paper in papers()}
    venues = {paper["venue"] for paper in papers()} | {"SoCC", "PVLDB"}
    found = subprocess.run(
        [
            "git",
            "grep",
            "-ohE",
            rf"\b({'|'.join(sorted(venues))}) (19|20)[0-9]{{2}}",
            "--",
            *PLACES,
            ":!*.cpp",
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    cited = set(found.stdout.splitlines())
    assert cited - known == set()
    assert len(cited) >= 5


def test_the_page_of_systems_lists_every_paper_with_its_link() -> None:
    page = (REPOSITORY / "docs" / "systems.md").read_text(encoding="utf-8")
    cited = [
        f"| {paper['name']} ({paper['venue']} {paper['year']}) |" for paper in papers()
    ]
    linked = [f"[{paper['title']}]({paper['link']})" for paper in papers()]
    assert [text for text in cited + linked if text not in page] == []


def test_every_link_to_a_paper_is_the_tables() -> None:
    links = {paper["link"] for paper in papers()}
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    cited = set(re.findall(r"https://(?:arxiv\.org/abs|doi\.org)/[\w./-]+\w", text))
    assert cited <= links


def test_every_claim_belongs_to_a_listed_paper() -> None:
    assert {claim.paper for claim in claims().values()} <= {
        paper["id"] for paper in papers()
    }
