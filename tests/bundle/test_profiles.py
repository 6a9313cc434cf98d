"""Profiles by arithmetic: what runs is stated, what it takes is computed, and what was published stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from helpers.installation import CONFIG, device, install
from helpers.trees import grow
from omniwatch import settings
from omniwatch.bundle import check, profiles, render
from omniwatch.bundle.data import root as data_root
from omniwatch.bundle.render import write
from omniwatch.cli import main
from omniwatch.client import Config
from omniwatch.desk.plan import profile_sizes

PUBLISHED = ("3b-int8-moe4", "int4")
OWN = ("orin", "orin-int4", "orin-text")
DATA = Path(__file__).parents[1] / "data" / "units"
DROPIN = f"etc/systemd/system/qwen3-omni.service.d/{profiles.DROPIN}"


def unit(profile: str, device_gb: float = 64) -> str:
    runbooks = {"runbook_base_url": "https://github.com/omniwatch/omniwatch/blob/main/runbooks"}
    server = {"profile": profile, "device_memory_gb": device_gb}
    site = settings.parse(yaml.safe_dump({"server": server, "site": runbooks}))
    return {path.name: text for path, text in render.render(site).items()}["qwen3-omni.service"]


def test_each_profile_is_published_or_ours():
    assert {name: profiles.load(name).published for name in profiles.available()} == dict.fromkeys(
        PUBLISHED, True
    ) | dict.fromkeys(OWN, False)


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_was_published_is_rendered_to_the_character(name):
    assert unit(name) == (DATA / f"profile-{name}.service").read_text(encoding="utf-8")


def test_published_budgets_are_the_published_ones():
    reduced = [part.gb for part in profiles.load("3b-int8-moe4").reduced_from]
    assert reduced == [79, 38, 21, 13]
    assert profiles.load("3b-int8-moe4").needs_gb(64) == 13
    assert [part.gb for part in profiles.load("int4").memory] == [23, 19]
    assert profiles.load("int4").needs_gb(64) == 48, "vLLM takes its share of the device, needed or not"


@pytest.mark.parametrize("name", OWN)
def test_our_budgets_are_computed(name):
    profile = profiles.load(name)
    assert not profile.memory
    assert profile.needs_gb(64) == max(profile.computed_gb(), profile.claimed * 64)
    assert profile.needs_gb(10) == profile.computed_gb() > 20


@pytest.mark.parametrize("name", OWN)
def test_the_share_of_each_stage_holds_what_is_computed_for_it(name):
    profile = profiles.load(name)
    assert profile.plan is not None
    words = profile.words()
    file = Path(words[words.index("--deploy-config") + 1]).name
    site = settings.parse(yaml.safe_dump({"server": {"profile": name}}))
    files = {path.name: text for path, text in render.render(site).items()}
    stages = yaml.safe_load(files[file])["stages"]
    shares = {str(stage["stage_id"]): stage["gpu_memory_utilization"] for stage in stages}
    shares |= profiles.stage_shares(profile)
    needed = {str(stage.id): stage.share for stage in profile_sizes.result(profile.plan).stages}
    assert shares.keys() == needed.keys()
    assert all(shares[stage] >= needed[stage] for stage in needed), (shares, needed)
    assert sum(shares.values()) == pytest.approx(profile.claimed)
    seats = {stage["max_num_seqs"] for stage in stages}
    if "--max-num-seqs" in words:
        seats = {int(words[words.index("--max-num-seqs") + 1])}
    assert seats == {profile.plan.streams}
    assert int(words[words.index("--max-model-len") + 1]) == profile.plan.max_model_len


@pytest.mark.parametrize(("name", "device_gb"), [("int4", 32), ("3b-int8-moe4", 16)])
def test_what_was_published_renders_on_any_device_with_a_warning(tmp_path, name, device_gb):
    (tmp_path / "omniwatch.yaml").write_text(f"server: {{profile: {name}, device_memory_gb: {device_gb}}}")
    config = ["--config.file", str(tmp_path / "omniwatch.yaml")]
    done = CliRunner().invoke(main, ["render", "qwen3-omni.service", *config])
    assert done.exit_code == 0
    assert f"for a device with {device_gb}" in done.stdout
    (warning,) = done.stderr.splitlines()
    assert warning.startswith(f"warning: profile {name} does not fit: it takes ")


@pytest.mark.parametrize(("name", "memory_kb"), [("int4", 31_000_000), ("3b-int8-moe4", 16_000_000)])
def test_what_was_published_is_not_installed_where_it_does_not_fit(tmp_path, name, memory_kb):
    done = install(device(tmp_path, memory_kb), "--profile", name)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert f"profile {name} does not fit" in done.stderr
    assert not (tmp_path / CONFIG).exists()


def test_the_larger_of_stated_and_computed_decides(tmp_path):
    """A recipe that understates: one expert of INT8 is said to be enough for all of it."""
    folder = tmp_path / profiles.FOLDER
    folder.mkdir(parents=True)
    text = (data_root() / profiles.FOLDER / "int4.yaml").read_text()
    (folder / "int4.yaml").write_text(
        text.replace("gb: 23", "gb: 2").replace("gb: 19}", "gb: 1}").replace("0.75", "0.1")
    )
    small = profiles.load("int4", tmp_path)
    assert (small.stated_gb(), small.computed_gb()) == (3, pytest.approx(29.1))
    with pytest.raises(profiles.ProfileError, match="it takes 29 GB"):
        profiles.fitting("int4", 32, tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("memory: [{what: guessed, gb: 5}]", "memory: stated by published profiles, and only by them"),
        ("published: true", "memory: stated by published profiles, and only by them"),
        ("cannot: it is late", "either plan, or cannot"),
        ("computed: []", "plan and computed: either both, or neither"),
        ("computed: [{what: nothing, gb: 0}]", "Expected `float` > 0.0 - at `$.computed[0].gb`"),
    ],
)
def test_a_profile_that_does_not_hold(tmp_path, text, says):
    folder = tmp_path / profiles.FOLDER
    folder.mkdir(parents=True)
    base = "summary: s\nruns: process\ncommand: [/bin/server]\n"
    computed = "" if "computed:" in text else "computed: [{what: thinker, gb: 5}]\n"
    (folder / "x.yaml").write_text(f"{base}plan: {{}}\n{computed}{text}")
    with pytest.raises(profiles.ProfileError) as error:
        profiles.load("x", tmp_path)
    assert says in str(error.value)


@pytest.mark.slow
def test_beside_a_published_claim_stands_what_arithmetic_says(tmp_path):
    done = install(device(tmp_path), "--profile", "int4", "--no-start")
    assert done.exit_code == 0
    assert done.stderr.splitlines()[:2] == [
        "note: profile int4: published as 42 GB; computed 29.1 GB; vLLM takes 75% of the device, 48 GB",
        "note: profile int4: runs no tap, so there are no curves: install --with-tap adds it",
    ]


@pytest.mark.slow
def test_where_nothing_can_be_computed_the_reason_is_given(tmp_path):
    done = install(device(tmp_path), "--profile", "3b-int8-moe4", "--no-start")
    assert (
        "published as 13 GB, which cannot be computed: 4 of 16 experts - there are 128 a layer" in done.stderr
    )


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.slow
def test_the_tap_comes_in_a_drop_in_and_the_unit_stays(tmp_path, name):
    root = device(tmp_path)
    done = install(root, "--profile", name, "--with-tap")
    assert done.exit_code == 0, done.output
    assert "runs no tap" not in done.stderr
    body = (root / "etc/systemd/system/qwen3-omni.service").read_text(encoding="utf-8")
    assert "omniwatch.tap" not in body
    text = (root / DROPIN).read_text(encoding="utf-8")
    reset, command = text.split("ExecStart=")[1:]
    assert reset == "\n"
    words = " ".join(command.replace("\\\n", " ").split())
    assert words.endswith("--middleware omniwatch.tap.Tap")
    before = " ".join(
        body.split("ExecStart=")[1]
        .split("\n\n")[0]
        .replace("\\\n", " ")
        .split("\nExec")[0]
        .split("\n#")[0]
        .split()
    )
    added = {
        "-v",
        "/opt/omniwatch/tap:/opt/omniwatch/tap:ro",
        "-e",
        "PYTHONPATH=/opt/omniwatch/tap",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE=75",
        "--middleware",
        "omniwatch.tap.Tap",
    }
    assert [word for word in words.split() if word not in added] == [
        word for word in before.split() if word not in added
    ]
    if name == "int4":
        assert 'Environment="PYTHONPATH=/opt/omniwatch/tap"' in text
    again = install(root, "--profile", name)
    assert again.exit_code == 0
    assert not (root / DROPIN).exists(), "asked for no more"


def test_a_profile_with_the_tap_needs_no_drop_in(tmp_path):
    root = device(tmp_path)
    assert install(root, "--profile", "orin-int4", "--with-tap").exit_code == 0
    assert not (root / DROPIN).exists()
    assert (root / "etc/omniwatch/orin-stages.yaml").exists()
    assert not (root / "etc/omniwatch/orin-text-stages.yaml").exists()


def test_the_text_profile_brings_its_own_stages(tmp_path):
    root = device(tmp_path)
    assert install(root, "--profile", "orin-text").exit_code == 0
    stages = yaml.safe_load((root / "etc/omniwatch/orin-text-stages.yaml").read_text())
    assert [stage["stage_id"] for stage in stages["stages"]] == [0]
    assert stages["pipeline"] == "qwen3_omni_moe_thinker_only"


def test_a_tap_without_a_server_is_refused(tmp_path):
    done = install(device(tmp_path), "--with-tap")
    assert done.exit_code == 2
    assert "--with-tap adds to the model server of --profile" in done.stderr


def test_a_small_device_keeps_its_config_small(tmp_path):
    """A config that states less memory than is measured is believed, for computed profiles too."""
    root = device(tmp_path)
    grow(root, f"{CONFIG}: server: {{device_memory_gb: 40}}")
    assert "the device has 40 GB" in install(root, "--profile", "orin-int4").stderr


def test_check_warns_of_a_server_that_can_be_put_to_sleep(tmp_path):
    write(render.render(settings.Settings()), tmp_path)
    unit = tmp_path / "deploy/systemd/qwen3-omni.service"
    assert not _of_the_server(tmp_path)
    unit.write_text(unit.read_text().replace("--max-model-len", "--enable-sleep-mode --max-model-len"))
    (warned,) = _of_the_server(tmp_path)
    assert warned.status is check.Status.LINT
    assert "--enable-sleep-mode: on a Jetson sleep frees no memory" in warned.detail


def _of_the_server(directory):
    found = check.check(directory, lambda tool: None, unit_tests=False)
    return [result for result in found if result.check == "model server"]


def test_the_server_keeps_connections_for_longer_than_a_client_waits_between_two_pings():
    unit = {path.name: text for path, text in render.render(settings.parse("")).items()}["qwen3-omni.service"]
    in_container = profiles.tap_dropin(profiles.load("3b-int8-moe4"), "auto")
    published = profiles.tap_dropin(profiles.load("int4"), "auto").splitlines()
    assert 'Environment="VLLM_HTTP_TIMEOUT_KEEP_ALIVE=75"' in published
    assert 'Environment="VLLM_HTTP_TIMEOUT_KEEP_ALIVE=75"' in unit.splitlines()
    assert " -e VLLM_HTTP_TIMEOUT_KEEP_ALIVE=75" in in_container
    assert 3 * Config().warm_ping_s <= profiles.KEEP_ALIVE_S


@pytest.mark.parametrize("ear", ["auto", "sent", "kernel"])
def test_the_server_is_told_whether_to_ask_the_kernel_what_arrives(ear):
    site = settings.parse(yaml.safe_dump({"tap": {"ear": ear}}))
    unit = {path.name: text for path, text in render.render(site).items()}["qwen3-omni.service"]
    in_container = profiles.tap_dropin(profiles.load("3b-int8-moe4"), ear)
    told = ear != "auto"
    assert (f'Environment="OMNIWATCH_EAR={ear}"' in unit.splitlines()) is told
    assert (f" -e OMNIWATCH_EAR={ear}" in in_container) is told
    assert told or "OMNIWATCH_EAR" not in unit + in_container
