# Two commands do all the set-up on a fresh Debian or Ubuntu machine: `make demo`, `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test test-omni test-system test-chaos test-fleet bench lint schema picture pictures lock deb clean
.DEFAULT_GOAL := test

demo: $(READY)  ## the main job on loopback: simulated server, sidecar, Prometheus, Alertmanager, a page
	@deploy/setup.sh prometheus prometheus-alertmanager
	@$(BIN)/omniwatch demo $(DEMO_ARGS)

test: lint  ## everything but the slow suites, in under ten minutes
	@deploy/setup.sh prometheus prometheus-alertmanager victoria-metrics systemd-journal-remote systemd-container g++
	$(BIN)/pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder

test-omni: $(READY)  ## the tap on a real vLLM-Omni (installs one: 4 GB, minutes)
	@deploy/setup.sh prometheus prometheus-alertmanager
	$(BIN)/python tests/omni/installation.py
	$(BIN)/pytest --timeout=1800 tests/omni

test-system: $(READY)  ## installation under a real systemd, in a container; needs root
	@deploy/setup.sh debootstrap systemd-container prometheus victoria-metrics
	$(BIN)/pytest --timeout=1800 tests/system

test-chaos: $(READY)  ## things break, one at a time, and a quiet hour; needs root for a file system that is full
	@deploy/setup.sh prometheus prometheus-alertmanager
	$(BIN)/pytest --timeout=700 tests/chaos --ignore=tests/chaos/test_chaos.py
	$(BIN)/pytest --numprocesses=4 --timeout=700 tests/chaos/test_chaos.py

test-fleet: $(READY)  ## uplink, centre and scale on a real VictoriaMetrics
	@deploy/setup.sh prometheus prometheus-alertmanager victoria-metrics
	$(BIN)/pytest --numprocesses=4 --dist=loadfile --no-loadscope-reorder --timeout=900 tests/fleet --ignore=tests/fleet/test_scale.py
	$(BIN)/pytest --timeout=900 tests/fleet/test_scale.py

bench: $(READY)  ## ratios against peers, on this machine
	@deploy/setup.sh mtail prometheus victoria-metrics
	@for bench in tests/bench/[a-z]*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

schema: $(READY)  ## docs/events.schema.json from the structs
	$(BIN)/python -m omniwatch.events > docs/events.schema.json

lock:  ## tests/requirements.txt from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
	  --no-header --all-extras --group dev pyproject.toml --output-file tests/requirements.txt

deb: $(READY)
	deploy/packaging/build.sh

$(READY): tests/requirements.txt pyproject.toml
	@deploy/setup.sh python3-venv
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement tests/requirements.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf $(VENV) build dist

pictures: $(READY)  ## docs/dashboards/*.svg
	@deploy/setup.sh prometheus
	PYTHONPATH=tests $(BIN)/python tests/dashboard_pictures.py docs/dashboards

picture: $(READY)  ## docs/curves.svg, docs/chunks.svg
	$(BIN)/omniwatch simulate --scenario overload --speed max --start-time 0 > build-overload.jsonl
	$(BIN)/omniwatch replay build-overload.jsonl --plot docs/curves.svg
	rm build-overload.jsonl
	$(BIN)/python tests/chunks_picture.py docs/chunks.svg
