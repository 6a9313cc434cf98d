"""What pages and runbooks say of the causes of bad turns: the verdicts' own causes, each with words and a section."""

from __future__ import annotations

import re

import pytest
import yaml

from helpers.bundles import rendered
from omniwatch.bundle import catalogue, data
from omniwatch.core.verdict import CAUSES

VERDICTS = yaml.safe_load((data.root() / "alerts/verdicts.yaml").read_text(encoding="utf-8"))
TOLD = {name: entry.symptoms for name, entry in catalogue.load().items() if entry.symptoms}
each_alert = pytest.mark.parametrize("alert", TOLD)


def sections(alert: str) -> dict[str, str]:
    """The text of each cause's section of a runbook."""
    text = (data.root() / f"runbooks/{alert}.md").read_text(encoding="utf-8")
    diagnosis = re.split(r"(?m)^## .+\n", text.split("\n## Diagnosis\n")[1])[0]
    parts = re.split(r"(?m)^### (.+)\n", diagnosis)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_words_are_of_the_causes_that_verdicts_have():
    assert {
        symptom: {cause for cause, words in VERDICTS["causes"].items() if symptom in words["symptoms"]}
        for symptom in VERDICTS["symptoms"]
    } == {symptom: set(causes) for symptom, causes in CAUSES.items()}
    assert {cause for cause, words in VERDICTS["causes"].items() if words.get("outside")} == {
        "network",
        "listener",
        "cut",
    }


def test_six_alerts_say_why():
    assert set(TOLD) == {
        *("CodecDrift", "TokenRTT", "TurnsOutOfSync", "RedLineBurn", "StreamSilent", "AnswersFailing")
    }
    assert {symptom for symptoms in TOLD.values() for symptom in symptoms} <= set(CAUSES)


@each_alert
def test_a_runbook_has_a_section_for_each_cause_that_its_symptoms_can_have(alert):
    assert set(sections(alert)) == {cause for symptom in TOLD[alert] for cause in CAUSES[symptom]}
    assert all(text.strip() for text in sections(alert).values())


@each_alert
def test_a_cause_is_told_alike_on_every_page(alert):
    for other in TOLD:
        theirs = sections(other)
        for cause, text in sections(alert).items():
            assert theirs.get(cause, text).strip() == text.strip(), f"{cause}: {alert} and {other} differ"


@each_alert
def test_the_diagnosis_begins_with_the_verdict_and_with_how_to_silence(alert):
    text = (data.root() / f"runbooks/{alert}.md").read_text(encoding="utf-8")
    diagnosis = text.split("\n## Diagnosis\n")[1]
    commands = re.findall(r"(?ms)^```sh\n(.*?)^```", diagnosis)
    assert commands[0] == "omniwatch explain\n"
    assert diagnosis.index("silence add") < diagnosis.index("\n### ")


@pytest.mark.slow
@each_alert
def test_a_rule_asks_for_the_cause_and_has_its_words_in_both_languages(tmp_path, alert):
    directory = rendered(tmp_path)
    (rule,) = [
        rule
        for path in (directory / "alerts").glob("*.rules.yaml")
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if rule.get("alert") == alert
    ]
    said = rule["annotations"]
    for name, language in (("why", "en"), ("why_zh", "zh")):
        for cause in {cause for symptom in TOLD[alert] for cause in CAUSES[symptom]}:
            assert f'if eq . "{cause}" }}}}{VERDICTS["causes"][cause][language]}' in said[name]
    # A label that changes would be another alert, which waits anew.
    assert "why" not in rule["labels"]
