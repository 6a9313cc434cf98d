"""Stands for the model server on a test's machine: a program that speaks the event contract and can be told to burn CPU."""

PROGRAM = """\
#!/usr/bin/python3
import json, os, time

spool = os.open("/run/omniwatch/events.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
number = 0

def say(**fields):
    global number
    line = json.dumps({"t": time.time(), "stream": "a", "w": str(os.getpid()), "n": number, **fields}) + "\\n"
    number += 1
    os.write(spool, line.encode())

busy_s = float(os.environ.get("BUSY_MS", "1")) / 1000
say(ev="stream_start")
say(ev="turn", turn=1)
while True:
    begun = time.thread_time()
    while time.thread_time() - begun < busy_s:
        pass
    say(ev="audio", turn=1)
    time.sleep(0.08)
"""
PATH = "usr/local/bin/vllm-server"
UNIT = "qwen3-omni.service"
INSTALL = ("install", "--profile", "int4", "--device-memory-gb", "64")
