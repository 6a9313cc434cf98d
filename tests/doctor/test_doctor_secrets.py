"""What must never leave a device: secrets of every kind, planted wherever one can be, are in no file of a bundle."""

from __future__ import annotations

import base64
import json
import os
import tarfile
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.planted_secrets import ALPHABETS, SAFE, Plant, shapes, survivors
from omniwatch.doctor import bundle, spool, summary
from omniwatch.doctor.device import MOST_BYTES, AbsentError, DeviceAccess
from omniwatch.doctor.pseudonyms import Pseudonyms
from omniwatch.doctor.redact import GONE, Redactor, safe_fields, scrubbed, unspoken
from omniwatch.settings import SettingsError, parse


def planted_device(tmp_path: Path, plant: Plant, *, valid: bool = True) -> DeviceAccess:
    """A device whose every corner holds a secret."""
    safe = ALPHABETS[SAFE]
    files = {name: tmp_path / name for name in ("robot", "robot-secret", "mail", "pagerduty")}
    robot = f"https://oapi.dingtalk.example/robot/send?access_token={plant(safe)}"
    files["robot"].write_text(robot + "\n")
    for name in ("robot-secret", "mail", "pagerduty"):
        files[name].write_text(plant() + "\n")
    in_files = [robot.rpartition("=")[2], *(files[name].read_text().strip() for name in list(files)[1:])]
    hashed = bcrypt.hashpw(plant().encode()[:70], bcrypt.gensalt(4)).decode()
    plant.secrets.append(hashed)
    user, header, stream = plant(safe, 10), plant(), plant(safe)
    config = {
        "site": {"device": "orin", "runbook_base_url": f"https://reader:{plant(safe)}@wiki.example/runbooks"},
        "sources": [f"tail:{tmp_path}/events.jsonl"],
        "receivers": {
            "secrets": "inline",
            "page_webhook_url": f"https://pager.example/hooks/{plant(safe)}?key={plant(safe)}",
            "watchdog_webhook_url": f"https://ping.example/{plant(safe)}",
            "page": {
                "email_to": f"{plant(safe)}@example.org",
                "pagerduty_routing_key_file": str(files["pagerduty"]),
            },
            "mail": {"username": plant(safe), "password_file": str(files["mail"])},
        },
        "notify": {
            "robots": [
                {
                    "kind": "dingtalk",
                    "url_file": str(files["robot"]),
                    "secret_file": str(files["robot-secret"]),
                    "mention": [plant("0123456789", 9)],
                }
            ]
        },
        "grafana": {"url": f"http://admin:{plant(safe)}@grafana.example:3000"},
    }
    if not valid:
        config["notify"]["access"] = plant()
        config["grafana"]["url"] = {"nested": [plant(), {"deep": plant()}]}
    text = json.dumps(config, indent=1) + f"\n# was: {plant()}\n"
    (tmp_path / "omniwatch.yaml").write_text(text)
    web = {
        "basic_auth_users": {user: hashed},
        "http_server_config": {"headers": {"Content-Security-Policy": header}},
        "tls_server_config": {"cert_file": "/etc/omniwatch/tls.crt", "key_file": "/etc/omniwatch/tls.key"},
    }
    (tmp_path / "web.yml").write_text(json.dumps(web, indent=1) + f"\n# {plant()}\n")
    environment = {
        name: plant() for name in ("GRAFANA_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD")
    }
    everywhere = [*in_files, *environment.values(), user, hashed]
    spoken = plant.words("wann faehrt mein zug nach bern")
    said = [
        *(f"could not use {secret} today" for secret in everywhere),
        f"GET /v1/realtime?api_key={plant(safe)}&model=x HTTP/1.1",
        f"Authorization: Bearer {plant()}",
        f'{{"headers": {{"authorization": "Basic {base64.b64encode(plant().encode()).decode()}"}}}}',
        f"{{'x-api-key': '{plant()}', 'cookie': 'session={plant(safe)}'}}",
        f"(b'authorization', b'Bearer {plant(safe)}')",
        f'started with --api-key {plant(safe)} --hf-token={plant(safe)} --served "x"',
        f"password={plant(safe)} DB_PASSWORD: {plant(safe)} client_secret => token={plant(safe)}",
        f'{{"access_token": "{plant()}", "refresh_token":"{plant()}"}}',
        f"non-default args: {{'model': 'm', 'api_key': ['{plant(safe)}'], 'port': 8000}}",
        f'{{"api_key": ["{plant()}", "{plant()}"], "tokens_out": [1, 2]}}',
        f"Namespace(api_key=('{plant()}', '{plant(safe)}'), port=8000)",
        f"api_key: [{plant(safe)}, {plant(safe)}] and x-api-key: ['{plant()}', '{plant()}']",
        json.dumps({"body": json.dumps({"access_token": [plant(), [plant(), plant()]]})}),
        f"connecting to postgres://omni:{plant(safe)}@db.example/omni",
        f"POST https://hooks.slack.example/services/T0123/B0456/{plant(safe)} 500",
        f"POST https://open.feishu.example/open-apis/bot/v2/hook/{plant(safe)} failed",
        f"eyJhbGciOiJIUzI1NiJ9.{plant(safe)}.{plant(safe)}",
        f"token sk-{plant(safe)} and hf_{plant(safe)} and glsa_{plant(safe)} and xoxb-{plant(safe)}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{plant('abcdef')}\n{plant('abcdef')}\n-----END RSA PRIVATE KEY-----",
        f"retrying with Bearer {plant(safe)}",
        f"hash {plant.words(hashed[:-1] + 'x')} is not right",
        f"Received request chatcmpl-1: prompt: '{spoken}', params: SamplingParams(max_tokens=64)",
        f"body {{\"messages\": [{{\"role\": \"user\", \"content\": \"{spoken}\"}}]}}",
        f"ws /v1/resume?omniwatch_stream={stream}",
        f"X-Omni-Stream: {stream}",
        *(f"{text}" for text in shapes(plant)),
    ]  # fmt: skip
    lines = [
        {"ev": "stream_start", "t": 1.0, "stream": stream, "peer": f"{plant(safe)}:9", "kind": plant(safe)},
        {"ev": "turn", "t": 1.0, "stream": stream, "turn": plant(safe), "chars": 3, "text": spoken},
        {"ev": "turn_end", "t": 1.0, "stream": stream, "turn": 1, "reason": plant()},
        {"ev": "novel", "t": 1.0, "stream": stream, "said": spoken},
        {"ev": "turn", "t": -1, "stream": spoken},
    ]
    spool = [json.dumps(line) for line in lines] + [spoken, f'{{"broken": "{plant()}']
    (tmp_path / "events.jsonl").write_text("\n".join(spool) + "\n")

    def run(command: list[str]) -> str:
        if command[0] == "journalctl":
            entries = [
                {"MESSAGE": list(text.encode()) if n % 3 == 0 else text} for n, text in enumerate(said)
            ]
            return "".join(json.dumps(entry) + "\n" for entry in [*entries, *entries]) + plant() + "\n"
        if command[0] == "timedatectl":
            raise AbsentError(f"no bus at unix:path=/x?token={plant(safe)}")
        return "\n".join(said)

    def fetch(url: str) -> str:
        if "/health" in url:
            raise AbsentError(f"{url.replace('//', f'//me:{plant(safe)}@')}: 401: {said[1]}")
        if url.endswith("/alerts"):
            labels = {"alertname": "CodecDrift", "device": "orin", "severity": "page"}
            annotations = {"description": f"see https://me:{plant(safe)}@wiki.example/x?token={plant(safe)}"}
            alert = {"labels": labels, "annotations": annotations, "state": "firing", "activeAt": "now"}
            return json.dumps({"data": {"alerts": [alert]}})
        return "\n".join(f"# {line}" for text in said for line in text.splitlines())

    return DeviceAccess(
        parse_or_defaults(text),
        root=Path("/"),
        config=tmp_path / "omniwatch.yaml",
        web_config=tmp_path / "web.yml",
        prometheus=f"http://me:{plant(safe)}@127.0.0.1:9090",
        environment=environment,
        run=run,
        fetch=fetch,
    )


def parse_or_defaults(text: str):
    try:
        return parse(text)
    except SettingsError:
        return parse("{}")


def unpacked(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        return {entry.name: opened.extractfile(entry).read() for entry in opened.getmembers()}


@pytest.mark.parametrize("valid", [True, False], ids=["valid", "invalid"])
@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.slow
def test_no_secret_of_any_kind_is_in_any_file(tmp_path, alphabet, valid):
    plant = Plant(ALPHABETS[alphabet])
    device = planted_device(tmp_path, plant, valid=valid)
    evidence = bundle.gather(device)
    bundle.write(evidence, summary.write(evidence, "orin", 0.0), tmp_path / "out.tar.gz", 0.0)
    files = unpacked(tmp_path / "out.tar.gz")
    assert {"SUMMARY.md", "config/omniwatch.yaml", "config/web.yml", "journal/omniwatch.service.log"} <= {
        name.partition("/")[2] for name in files
    }
    assert len(plant.secrets) > 90
    told = [
        (name, secret)
        for secret in plant.secrets
        for name, content in files.items()
        if secret.encode() in content or secret in name
    ]
    assert told == [], told[:3]


def test_what_is_no_secret_stays(tmp_path):
    evidence = bundle.gather(planted_device(tmp_path, Plant(ALPHABETS[SAFE])))
    config, web = evidence.files["config/omniwatch.yaml"], evidence.files["config/web.yml"]
    assert "kind: dingtalk" in config
    assert f"password_file: {tmp_path}/mail" in config
    assert f"page_webhook_url: https://pager.example/{GONE}" in config
    assert "cert_file: /etc/omniwatch/tls.crt" in web
    events = evidence.files["events/0-events.jsonl"]
    assert '"stream":"stream-1"' in events
    assert "# no event (" in events
    assert "**CodecDrift** fires (page) device orin since now" in summary.write(evidence, "orin", 0.0)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("{'api_key': ['myOwnApiKey42xyz'], 'port': 8000}", f"{{'api_key': {GONE}, 'port': 8000}}"),
        ('{"api_key": ["tokenABC123456", "tok2secret"], "port": 1}', f'{{"api_key": {GONE}, "port": 1}}'),
        ("f(api_key=('a', \"b)\", ['c]', 'd']), port=1)", f"f(api_key={GONE}, port=1)"),
        ('"api_key": [\n  "a",\n  "b"\n],\n"port": 1', f'"api_key": {GONE},\n"port": 1'),
        ("api_key: ['cut sho\nport=[1]", f"api_key: {GONE}\nport=[1]"),
        ("prompt_token_ids=[1, 2], x=(3)", "prompt_token_ids=[1, 2], x=(3)"),
    ],
)
def test_a_list_of_secrets_goes_whole_and_no_more_than_it(text, left):
    assert Redactor()(text) == left


@pytest.mark.parametrize(
    "line",
    [
        'omni_token_rtt_ms{stream="0",vantage="client"} 640.0',
        "vllm:generation_tokens_total 12.0 and vllm:inter_token_latency_seconds_sum 3.5",
        "record: device_vantage:omni_token_rtt_ms:max",
        "TokenRTT: the user waits, max_tokens=4096, tokenizer: x",
        "http://127.0.0.1:9842/-/ready: status 503",
        "https://wiki.example/runbooks/CPUQuotaNotApplied.md",
        "http://g:3000/d/omni-streaming?from=1763712000000&to=1763712600000&var-device=orin&viewPanel=1",
        "/sys/fs/cgroup/system.slice/qwen3-omni.service/cpu.stat",
        "password_file: /etc/omniwatch/secrets/mail",
    ],
)
def test_what_only_looks_like_a_secret_stays(line):
    assert Redactor()(line) == line


@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=4),
    st.text(),
    st.text(),
)
def test_a_known_secret_goes_wherever_it_stands(secret, before, after):
    redacted = Redactor([secret])(f"{before} | {secret} | {after}")
    assert secret not in redacted.replace(GONE, "") or secret in f"{before}{after}{GONE}"


@given(st.recursive(st.text() | st.integers() | st.booleans() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10))  # fmt: skip
@pytest.mark.slow
def test_of_a_configuration_of_unknown_shape_no_text_stays(raw):
    def texts(value):
        if isinstance(value, dict):
            return [text for item in value.values() for text in texts(item)]
        if isinstance(value, list):
            return [text for item in value for text in texts(item)]
        return [value] if isinstance(value, str) and value else []

    assert set(texts(scrubbed(raw, known_shape=False))) <= {"<text>", GONE}


def test_a_users_words_end_a_line():
    assert unspoken("Received request 1: prompt: 'hello\nthere', params") == (
        "Received request 1: prompt: <what was said is left out>"
    )
    assert unspoken("Engine 000: Avg prompt throughput: 3.2 tokens/s") == (
        "Engine 000: Avg prompt throughput: 3.2 tokens/s"
    )


def test_the_archive_is_its_owners_alone(tmp_path):
    target = tmp_path / "out.tar.gz"
    bundle.write(bundle.Evidence(), "# words\n", target, 0.0)
    assert target.stat().st_mode & 0o777 == 0o600


def test_shapes_seed_by_seed_leave_nothing():
    """Hundreds of plants in more than a hundred shapes that a log has."""
    assert [found for seed in range(8) for found in survivors(seed)] == []


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-21 Engine 000: Avg prompt throughput: 3.2 tokens/s, KV cache usage: 1.0%",
        '127.0.0.1:5 - "GET /metrics HTTP/1.1" 200 OK',
        '127.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error',
        "user@1000.service: Deactivated successfully.",
        "CUDA driver 12.4.5.8, torch 2.9.1+cu130",
        '{"level": "info", "msg": "events lost", "count": 3}',
        "key frames every 2 s; monkey=1",
        "Loading Qwen3-Omni-30B-A3B-Instruct-AWQ-W4A16 with FlashAttentionBackend and CompressedTensorsW4A16MoEMethod",
        "exit code: 1, error code=500, status_code: 404",
        "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp310-cp310-linux_aarch64.whl",
        "time to first token ms: 300, per-token latency: 3.5 ms, prompt tokens: 12",
        "Linux 5.15.148-tegra #1 SMP PREEMPT Tue Jan 7 17:14:38 PST 2025 aarch64, L4T R36.4.3",
        "nvgpu: 17000000.gpu gv11b_fb_handle_mmu_fault:1234 at 0x0000ffff8a1b2c3d",
    ],
)
def test_what_a_log_is_read_for_stays(line):
    assert Redactor()(unspoken(Pseudonyms().unaddressed(safe_fields(line)))) == line


@pytest.mark.timeout(20)
def test_a_spool_that_never_ends_or_keeps_its_reader_waiting_is_left_out(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").symlink_to("/dev/zero")
    (tmp_path / "c.jsonl").write_bytes(b'{"ev":"stream_start","t":1.0,"stream":"s"}\n' * 3)
    device = DeviceAccess(parse("sources: ['tail:/*.jsonl']"), root=tmp_path)
    found: dict[str, str] = {}
    with pytest.raises(AbsentError) as missing:
        found.update(spool.gather(device))
    assert str(missing.value).count("not a regular file") == 2


@pytest.mark.timeout(20)
def test_of_a_long_file_the_end_is_read(tmp_path):
    path = tmp_path / "events.jsonl"
    with path.open("wb") as file:
        file.write(b"x" * (MOST_BYTES + 5) + b"\nlast one\nlast\n")
    assert DeviceAccess(lines=2).last_lines(path) == [b"last one\n", b"last\n"]
    assert DeviceAccess(lines=9).last_lines(path) == [b"last one\n", b"last\n"]
