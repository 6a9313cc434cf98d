"""Secrets, and lines of a log as programs write them with a secret in each."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator

from omniwatch.doctor.pseudonyms import Pseudonyms
from omniwatch.doctor.redact import Redactor, safe_fields, unspoken

ALPHABETS = {
    "hexadecimal": "0123456789abcdef",
    "letters": string.ascii_letters,
    "url-safe": string.ascii_letters + string.digits + "-_",
    "base64": string.ascii_letters + string.digits + "+/",
    "signs": string.ascii_letters + string.digits + "!#%()*.:;=@^~",
}


class Plant:
    """Makes secrets and remembers them."""

    def __init__(self, alphabet: str, seed: int | None = None) -> None:
        self._random = random.Random(alphabet if seed is None else seed)
        self._alphabet = alphabet
        self.secrets: list[str] = []

    def __call__(self, alphabet: str = "", length: int = 28) -> str:
        chosen = alphabet or self._alphabet
        # Begins and ends as a token does, so that it is one word in a line of a log.
        inner = "".join(self._random.choice(chosen) for _ in range(length))
        secret = f"{self._random.choice(string.ascii_letters)}{inner}{self._random.choice(string.digits)}"
        self.secrets.append(secret)
        return secret

    def words(self, text: str) -> str:
        """Plant a whole sentence."""
        self.secrets.append(text)
        return text


SAFE = "url-safe"


def shapes(plant: Plant) -> list[str]:
    """Lines of a model server's log as programs write them, each with a secret where that program puts one."""
    safe = ALPHABETS[SAFE]
    awkward = "aB3)'/x"
    return [
        f'10.0.0.1:5 - "GET /v1/resume/{plant(safe)} HTTP/1.1" 206 Partial Content',
        f'10.0.0.1:5 - "DELETE /v1/resume/{plant(safe)} HTTP/1.1" 204 No Content',
        f'10.0.0.1:5 - "WebSocket /v1/realtime/{plant(safe)}?id={plant(safe)}" [accepted]',
        f"X-Omni-Resume: {plant(safe)}",
        f"x-omniwatch-stream: {plant(safe)}",
        f"X-Auth-Key: {plant(safe)}",
        f"headers x-amz-security-token={plant(safe)}",
        f"vllm serve m --api-key {plant(safe)} {plant(safe)} --port 8000",
        f"vllm serve m --api-key {plant(safe)} {plant(safe)} {plant(safe)}",
        f"https://me:{plant.words(f'{plant(safe)}{awkward}{plant(safe)}')}@db.example/x",
        f"amqp://u:{plant(safe)}/{plant(safe)}@mq.example:5672",
        f"curl -u admin:{plant(safe)} http://127.0.0.1/",
        f"curl --user admin:{plant(safe)} http://127.0.0.1/",
        f"passwords: {{bob: {plant(safe)}, eve: {plant(safe)}}}",
        f"credentials = {{'a': {{'b': '{plant()}'}}}}",
        f"encryption_key={plant(safe)} rotated",
        f"disk-key: {plant(safe)}",
        f"{{'user': '{plant.words('ann.bird@firm.example')}', 'n': 1}}",
        f'{{"user": "{plant.words("Ann Bird of Bern")}", "max_tokens": 64}}',
        f'{{"text":"{plant.words("call my doctor at noon")}"}}',
        f'{{"input": "{plant.words("meet me at the gate")}", "stream": true}}',
        json.dumps({"raw": json.dumps({"note": plant.words("the code is four one")})}),
        f"mail to {plant.words('bo.li+x@mail.example.org')} failed",
        f"client {plant.words('203.0.113.77')} gone",
        f"client {plant.words('2001:db8:77::9')} gone",
        f"{{'client': ('{plant.words('198.51.100.23')}', 4711)}}",
        f'{{"session": "{plant(safe)}", "status": "open"}}',
        f"Set-Cookie: sid={plant(safe)}; Path=/",
        f"Proxy-Authorization: Basic {plant(safe)}",
        f'Authorization: Digest username="{plant(safe)}", response="{plant(safe)}"',
        f"sshpass -p {plant(safe)} ssh edge@10.0.0.4",
        f"mysqldump -u root -p{plant(safe)} omni",
        f"redis://:{plant(safe)}@cache.example:6379/0",
        f"export HF_TOKEN={plant(safe)}",
        f"wget --header='X-Api-Key: {plant(safe)}' http://h/",
        f'curl -H "Authorization: Bearer {plant(safe)}" http://h/',
        f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={plant(safe)};EndpointSuffix=core",
        f"Server=db;User Id=sa;Password={plant(safe)};",
        f"GET https://bucket.s3.example/model.bin?X-Amz-Credential={plant(safe)}&X-Amz-Signature={plant(safe)} 403",
        f"https://blob.example/x?sv=2021&sig={plant(safe)}",
        f"Cookie: a={plant(safe)}; b={plant(safe)}",
        f'body: "{{\\"token\\":\\"{plant(safe)}\\",\\"n\\":1}}"',
        f"repr: '{{\\'password\\': \\'{plant(safe)}\\'}}'",
        f"ghp_{plant(safe)} npm_{plant(safe)} github_pat_{plant(safe)}",
        f"AKIA{plant('ABCDEFGHIJKLMNOPQRSTUVWXYZ234567', 14)}",
        f"AIzaSy{plant(safe)}",
        f"redirect to /login?next=%2Fapi%3Ftoken%3D{plant(safe)}",
        f"config: {{APIKey:{plant(safe)} Model:omni}}",
        f"<password>{plant(safe)}</password>",
        f'<Token value="{plant(safe)}"/>',
        f"pass = {plant(safe)}",
        f"pwd={plant(safe)} user=x",
        f"passphrase is {plant(safe)}",
        f"machine api.example login edge password {plant(safe)}",
        f"PGPASSWORD={plant(safe)} psql -h db",
        f"docker run -e OPENAI_API_KEY={plant(safe)} img",
        f"password for user edge: {plant(safe)}",
        f"using token {plant(safe)}",
        f"API key {plant(safe)} is not valid",
        f"invalid api key: {plant(safe)}",
        f"Incorrect API key provided: {plant(safe)}.",
        f"https://api.telegram.org/bot{plant('0123456789', 8)}:{plant(safe)}/sendMessage",
        f"https://discord.com/api/webhooks/12345/{plant(safe)}",
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={plant(safe)}",
        f"https://firm.webhook.office.com/webhookb2/{plant(safe)}@{plant(safe)}/IncomingWebhook/{plant(safe)}",
        f"peer ::ffff:{plant.words('203.0.113.9')} gone",
        f"from [{plant.words('2001:db8::1f')}]:443",
        f"ASR result: {plant.words('please ring my sister tonight')}",
        f"transcription='{plant.words('the door code is nine')}'",
        f"User said: {plant.words('where is the next pharmacy')}",
        f'query="{plant.words("how old is my boss")}" took 3 s',
        f"messages=[{{'role': 'user', 'content': [{{'type': 'text', 'text': '{plant.words('turn off the oven please')}'}}]}}]",
        f"TextPrompt(prompt='{plant.words('read me the letter')}', n=1)",
        f"generated_text: {plant.words('your balance is low today')}",
        f"inputs: ['{plant.words('sing the song of mice')}']",
        f"X-Forwarded-For: {plant.words('198.51.100.77')}, 10.0.0.1",
        f"session_id={plant(safe)} sid={plant(safe)}",
        f"session {plant(safe)} opened",
        f"stream id={plant(safe)} closed",
        f"X-Omni-Resume={plant(safe)}",
        f"('x-omni-resume', '{plant(safe)}')",
        f"[(b'cookie', b'{plant(safe)}'), (b'x-api-key', b'{plant(safe)}')]",
        f"http://127.0.0.1:8000/v1/resume/{plant(safe)}",
        f"secret_key_base: {plant(safe)}",
        f"client-secret={plant(safe)}",
        f"otp: {plant('0123456789', 6)}",
        f"ssh-rsa AAAAB3NzaC1yc2E{plant(safe)} ann@laptop",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{plant(safe)}\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN EC PRIVATE KEY----- {plant(safe)}",
        f"License key: {plant(safe)}",
        f"kubectl create secret generic x --from-literal=password={plant(safe)}",
        f"bearer_token: {plant(safe)}",
        f"auth_token => '{plant(safe)}'",
        f"token: !vault |\n  {plant(safe)}",
        f"password: >-\n  {plant(safe)}",
        f"--hf_token {plant(safe)}",
        f"-H 'Cookie: {plant(safe)}'",
        f'Environment="WANDB_API_KEY={plant(safe)}"',
        f"basic_auth: {{username: x, password: {plant(safe)}}}",
        f'{{"messages":[{{"role":"user","content":"{plant.words("my pin is four five")}"}}]}}',
        f"{{'text': \"{plant.words(chr(39).join(['don', 't tell my wife']))}\"}}",
        f"http://proxy_user:{plant(safe)}@proxy:3128",
        f"URL: ws://h/v1/realtime?token={plant(safe)}",
        f'"WebSocket /v1/realtime?api_key={plant(safe)}" [accepted]',
        f"GET /v1/chat?x={plant(safe)} HTTP/1.1",
        f"SAMLResponse={plant(safe)}",
        f"code_verifier={plant(safe)}&code={plant(safe)}",
        f"refresh token {plant(safe)} expired",
        f"WWW-Authenticate: {plant(safe)}",
        f"PRIVATE-TOKEN: {plant(safe)}",
        f"Ocp-Apim-Subscription-Key: {plant(safe)}",
        f"x-goog-api-key: {plant(safe)}",
    ]


def of_seed(seed: int) -> Plant:
    """A plant whose secrets are those of a seed."""
    return Plant(ALPHABETS[SAFE], seed)


def survivors(seed: int) -> Iterator[tuple[int, str, str]]:
    """Yield (the shape's number, the line as it is told, the secret) of each secret of a seed's lines that is still there."""
    plant, names, redact = of_seed(seed), Pseudonyms(), Redactor()
    lines = shapes(plant)
    for number, line in enumerate(lines):
        told = redact(unspoken(names.unaddressed(safe_fields(line))))
        yield from ((number, told, secret) for secret in plant.secrets if secret in told)
