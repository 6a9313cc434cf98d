"""The Chinese text: one word for a term, signs of full width, the pages that belong to English ones hold what those hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from helpers.paths import CLONE
from omniwatch.bundle import trial_page
from omniwatch.notify.messages import WORDS
from omniwatch.settings import Settings

ZH = CLONE / "docs/zh"
PAGES = sorted(ZH.glob("*.md"))
GLOSSARY = ZH / "glossary.md"
RUNBOOKS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((CLONE / "runbooks").glob("*.md"))}
HAN = r"[\u4e00-\u9fff]"
HALF_WIDTH = re.compile(rf"(?<={HAN})[,;:!?]|[,;:!?](?= ?{HAN})")


def prose(page: Path) -> str:
    """A page without its code and addresses, which keep their own signs."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"(?m)^(?: {4}|<!--).*$", "", text)
    return re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)


def texts() -> dict[str, str]:
    """All Chinese that a person reads, by where it is."""
    found = {page.name: prose(page) for page in PAGES if page != GLOSSARY}
    catalogue = yaml.safe_load((CLONE / "alerts/catalogue.yaml").read_text(encoding="utf-8"))
    found |= {name: entry["summary_zh"] for name, entry in catalogue.items() if "summary_zh" in entry}
    verdicts = yaml.safe_load((CLONE / "alerts/verdicts.yaml").read_text(encoding="utf-8"))
    found |= {name: one["zh"] for kind in verdicts.values() for name, one in kind.items()}
    found["messages"] = "\n".join(WORDS["zh"].values())
    found["page --test"] = trial_page.alert(Settings(), "page", 0, 1)["annotations"]["summary_zh"]
    return found


def tables(path: Path) -> list[list[str]]:
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    return [row for row in cells if row[0] not in ("term", "English") and not set(row[0]) <= {"-"}]


TEXTS = texts()
TERMS = {row[0]: (row[1], [word for word in row[-1].split("、") if word]) for row in tables(GLOSSARY)}
REFUSED = sorted({word for _, words in TERMS.values() for word in words})


def test_the_glossary_has_every_term_of_the_english_one_and_a_word_for_it():
    english = [row[0] for row in tables(CLONE / "docs/glossary.md")]
    assert [term for term in TERMS if term in english] == english
    assert all(word for word, _ in TERMS.values())
    words = [word for word, _ in TERMS.values()]
    assert len(set(words)) == len(words)
    assert not set(words) & set(REFUSED)


@pytest.mark.parametrize("where", TEXTS)
def test_a_term_has_one_word(where):
    for word in REFUSED:
        text = TEXTS[where]
        for longer in (chosen for chosen, _ in TERMS.values() if word in chosen):
            text = text.replace(longer, "")
        assert word not in text


@pytest.mark.parametrize("where", TEXTS)
def test_signs_between_chinese_words_have_their_full_width(where):
    text = TEXTS[where]
    assert [text[max(0, found.start() - 8) : found.end() + 8] for found in HALF_WIDTH.finditer(text)] == []


def first_60_seconds() -> dict[str, str]:
    parts = re.split(r"(?m)^## (\w+)\n", (ZH / "first-60-seconds.md").read_text(encoding="utf-8"))[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("name", RUNBOOKS)
def test_the_first_60_seconds_name_what_the_runbook_names(name):
    named = set(re.findall(r"`(?:cause=)?[^`]*`", RUNBOOKS[name].partition("## Meaning")[0]))
    assert set(re.findall(r"`(?:cause=)?[^`]*`", first_60_seconds()[name])) <= named


def blocks(path: Path) -> list[str]:
    """The code of a page, comments left out: they are translated."""
    found = re.findall(r"```\w*\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [re.sub(r"(?m)\s+#.*$", "", block) for block in found]


@pytest.mark.parametrize("name", ["vllm-omni", "plan", "lossy-paths", "release", "ansible", "boards"])
def test_a_translated_page_has_the_code_headings_and_tables_of_the_english_one(name):
    english, chinese = CLONE / f"docs/{name}.md", ZH / f"{name}.md"
    assert blocks(chinese) == blocks(english)

    def shape(path: Path) -> list[str]:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [
            re.match(r"#+ |\||- |!\[|<!--", line)[0]
            for line in lines
            if re.match(r"#+ |\||- |!\[|<!--", line)
        ]

    assert shape(chinese) == shape(english)
    numbers = r"\d[\d.,]*\d|\d"
    of_tables = [sorted(re.findall(numbers, " ".join(row))) for row in tables(english)]
    assert [sorted(re.findall(numbers, " ".join(row))) for row in tables(chinese)] == of_tables
