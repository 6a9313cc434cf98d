# Two commands do all the set-up on a fresh Debian or Ubuntu machine: `make demo`, `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# What the runbooks' commands need beside Prometheus and Alertmanager; the Debian package recommends the same.
RUNBOOK_TOOLS := curl iproute2 procps
# Debian packages that the suites need, by suite; `packages` installs all of them in one go.
MONITORING := prometheus prometheus-alertmanager
TEST_PACKAGES := $(MONITORING) victoria-metrics systemd-journal-remote systemd-container g++ libcurl4-openssl-dev libopus-dev groff-base chromium kubernetes-client $(RUNBOOK_TOOLS)
SYSTEM_PACKAGES := debootstrap systemd-container $(MONITORING) victoria-metrics
TARGETS_PACKAGES := debootstrap systemd-container prometheus-alertmanager
AARCH64_PACKAGES := debootstrap systemd-container qemu-user-static
CHAOS_PACKAGES := $(MONITORING)
FLEET_PACKAGES := $(MONITORING) victoria-metrics
CHAIN_PACKAGES := espeak-ng
BROWSER_PACKAGES := chromium
CONTAINER_PACKAGES := debootstrap systemd-container buildah podman runc $(MONITORING)
PATH_PACKAGES := $(MONITORING) iproute2 g++ libcurl4-openssl-dev libopus-dev
OMNI_PACKAGES := $(MONITORING) espeak-ng

RUFF := $(BIN)/ruff check . && $(BIN)/ruff format --check .
# The oldest Python of a device: no name that it lacks. vermin takes the names that are excluded for Python 2's, and would judge no file
# that has them.
OLDEST := $(BIN)/vermin --quiet --target=3.10- --violations --no-tips --exclude file --exclude str.decode \
  --exclude 'str.decode(errors)' exporter tests docs .ci
LINT := $(RUFF) && $(BIN)/mypy && $(OLDEST)

# Some machines ask for no compiled modules; the suites start hundreds of programs.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test quick test-limits test-omni test-system test-chaos test-fleet test-uplink test-scale test-chain test-browser test-clients test-path path-all test-targets test-jammy test-container test-compose test-release image release test-readme test-aarch64 downloads demo-chain packages nightly bench adversary lint docs schema picture pictures plan-pages profiles noise lock deb clean
.DEFAULT_GOAL := test

help:  ## this list
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(READY)  ## the main job on loopback: simulated server, sidecar, Prometheus, Alertmanager, a page
	@deploy/setup.sh prometheus prometheus-alertmanager
	@$(BIN)/omniwatch demo $(DEMO_ARGS)

test: $(READY)  ## everything but the slow suites, in under ten minutes
	# Whoever reads the tests first compiles their asserts: once, beside the type checker, and not each worker for itself.
	@$(BIN)/pytest --collect-only --quiet >/dev/null & $(LINT); linted=$$?; wait; exit $$linted
	@deploy/setup.sh $(TEST_PACKAGES)
	# Many tests run promtool, which by default spends a third of its time on collecting garbage.
	GOGC=400 $(BIN)/pytest --numprocesses=5 --dist=loadfile --no-loadscope-reorder

quick: $(READY)  ## ruff, and what needs no server, no browser and no promtool, in under two minutes
	$(RUFF)
	$(BIN)/pytest -m "not programs and not slow" --ignore=tests/alerts --ignore=tests/e2e --numprocesses=3 --dist=loadfile --no-loadscope-reorder

test-limits: $(READY)  ## the rules' unit tests notice each limit that is a step off
	@deploy/setup.sh $(CHAOS_PACKAGES)
	GOGC=400 $(BIN)/pytest --numprocesses=3 tests/suites/limits

test-omni: $(READY)  ## the tap on a real vLLM-Omni, and `bench chain` (installs one: 4 GB, minutes)
	@deploy/setup.sh $(OMNI_PACKAGES)
	$(BIN)/python tests/suites/omni/installation.py
	$(BIN)/pytest --timeout=1800 tests/suites/omni --ignore=tests/suites/omni/test_plan.py
	$(BIN)/pytest --timeout=1800 tests/suites/omni/test_plan.py

test-system: $(READY)  ## installation under a real systemd, in a container; needs root
	@deploy/setup.sh $(SYSTEM_PACKAGES)
	$(BIN)/pytest --timeout=1800 tests/suites/system

test-chaos: $(READY)  ## things break, one at a time, and a quiet hour; needs root for a file system that is full
	@deploy/setup.sh $(CHAOS_PACKAGES)
	$(BIN)/pytest --timeout=700 tests/suites/chaos --ignore=tests/suites/chaos/test_chaos.py
	$(BIN)/pytest --numprocesses=6 --dist=worksteal --timeout=700 tests/suites/chaos/test_chaos.py

test-fleet: test-uplink test-scale  ## uplink, centre and scale on a real VictoriaMetrics

test-uplink: $(READY)  ## the part of test-fleet that mostly waits
	@deploy/setup.sh $(FLEET_PACKAGES)
	$(BIN)/pytest --numprocesses=4 --dist=loadfile --no-loadscope-reorder --timeout=900 tests/suites/fleet --ignore=tests/suites/fleet/test_scale.py

test-scale: $(READY)  ## the part of test-fleet that measures: with nothing beside it
	@deploy/setup.sh $(FLEET_PACKAGES)
	$(BIN)/pytest --timeout=900 tests/suites/fleet/test_scale.py

test-chain: $(READY)  ## a real cascade of ASR, LLM and TTS, measured and checked on the wire (installs one: 750 MB)
	@deploy/setup.sh $(CHAIN_PACKAGES)
	$(BIN)/python tests/suites/chain/installation.py
	$(BIN)/pytest --timeout=900 tests/suites/chain

test-browser: $(READY)  ## the live page in Debian's Chromium, through a real sidecar (installs Playwright: 170 MB)
	@deploy/setup.sh $(BROWSER_PACKAGES)
	$(BIN)/python tests/suites/browser/installation.py
	$(BIN)/pytest -rs --timeout=300 tests/suites/browser

test-clients: $(READY)  ## Pipecat's and LiveKit's own realtime clients through the tap (installs them: 950 MB)
	$(BIN)/python tests/suites/clients/installation.py
	$(BIN)/pytest tests/suites/clients

test-path: $(READY)  ## what is shown beside what a listener had, and what fits through, over real lossy paths; needs root and a quiet machine
	@deploy/setup.sh $(PATH_PACKAGES)
	$(BIN)/pytest -s --timeout=900 tests/suites/path

path-all: $(READY)  ## every combination of test-path's scenarios, congestion controls, codecs and clients, for docs/claims.md: an hour
	@deploy/setup.sh $(PATH_PACKAGES)
	PYTHONPATH=tests $(BIN)/python tests/suites/path/air.py tests/data/path_air.json

test-targets: $(READY)  ## Ubuntu 22.04, 24.04 and Debian 13: a device, and `make quick`; needs root and their archives
	@deploy/setup.sh $(TARGETS_PACKAGES)
	$(BIN)/pytest -rs --timeout=1800 tests/suites/targets/test_device.py tests/suites/targets/test_upgraded_python.py tests/suites/targets/test_quick.py

test-jammy: $(READY)  ## the device part of test-targets for Ubuntu 22.04, which JetPack 6 is
	@deploy/setup.sh $(TARGETS_PACKAGES)
	$(BIN)/pytest -rs --timeout=1800 tests/suites/targets/test_device.py -k jammy

test-container: $(READY)  ## the images, as buildah makes them and podman runs them; needs root
	@deploy/setup.sh $(CONTAINER_PACKAGES)
	$(BIN)/pytest -rs --timeout=600 tests/suites/container/test_images.py

test-compose: $(READY)  ## deploy/compose comes up and pages, and a device's unit tests on a cluster's rules; needs root
	@deploy/setup.sh $(CONTAINER_PACKAGES)
	$(BIN)/pytest -rs --timeout=900 tests/suites/container/test_compose.py tests/suites/container/test_cluster_rules.py

test-release: $(READY)  ## `make release` twice, upgrade and downgrade between two versions, the Ansible role (installs one: 60 MB); needs root
	@deploy/setup.sh $(CONTAINER_PACKAGES)
	$(BIN)/python tests/suites/release/installation.py
	$(BIN)/pytest -rs --timeout=900 tests/suites/release

test-readme: $(READY)  ## both of README's commands on bare machines of all four distributions; needs root and their archives: an hour
	@deploy/setup.sh $(TARGETS_PACKAGES)
	$(BIN)/pytest -rs --durations=0 --durations-min=1 --timeout=5400 tests/suites/targets/test_readme.py

test-aarch64: $(READY)  ## what every board is, by qemu: wheels, replay, exporter, C++ client, installation, `make quick`; needs root: an hour
	@deploy/setup.sh $(AARCH64_PACKAGES)
	$(BIN)/pytest -rs --durations=0 --durations-min=1 --timeout=3600 tests/suites/targets/test_aarch64.py

downloads: $(READY)  ## what test-chain and test-omni run on: 5 GB, minutes
	$(BIN)/python tests/suites/chain/installation.py
	$(BIN)/python tests/suites/omni/installation.py

demo-chain: $(READY)  ## the table of a real cascade on this machine
	@deploy/setup.sh espeak-ng
	PYTHONPATH=tests $(BIN)/python tests/suites/chain/demo.py $(DEMO_ARGS)

bench: $(READY)  ## ratios against peers, on this machine
	@deploy/setup.sh mtail prometheus victoria-metrics g++ libcurl4-openssl-dev libopus-dev opus-tools chromium
	@for bench in tests/bench/[a-z]*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

adversary: $(READY)  ## attacks made up at random, for an hour: connections, races, secrets, settings, kills, links, journals, files, webhooks
	@deploy/setup.sh prometheus prometheus-alertmanager
	@failed=; for attack in tests/adversary/[a-z]*.py; do \
	  echo "== $$attack, from $$(date +%T) on"; $(BIN)/python $$attack || failed="$$failed $$attack"; done; \
	echo "== until $$(date +%T); failed:$${failed:- none}"; test -z "$$failed"

nightly: bench adversary test-clients test-compose test-release test-readme test-aarch64  ## what is too long for each change: benchmarks, attacks, short cuts, real paths, releases, `make test` on all targets
	CUTS_S=600 $(BIN)/pytest --timeout=900 tests/suites/fleet/test_outage.py
	PATH_ALL=1 $(BIN)/pytest -s tests/suites/path/test_air.py
	PAGE_HOURS=8 $(BIN)/pytest --timeout=1800 tests/suites/browser/test_memory.py

lint: $(READY)  ## ruff, mypy, and vermin: no name that Python 3.10 lacks
	$(LINT)

docs: $(READY)  ## the manual, into build/docs: generated references first, warnings are errors
	$(BIN)/python docs/reference.py
	$(BIN)/sphinx-build -W --keep-going -q -c docs -d build/doctrees . build/docs
	@echo "build/docs/index.html"

schema: $(READY)  ## docs/*.schema.json from the structs
	$(BIN)/python -m omniwatch.events > docs/events.schema.json
	$(BIN)/python -m omniwatch.desk.chain.results > docs/bench-chain.schema.json

EXTRAS := bench client desk grafana opus plot probe
lock:  ## tests/requirements.txt from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
	  --no-header $(EXTRAS:%=--extra %) --group dev --group docs pyproject.toml --output-file tests/requirements.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
	  --no-header --group release --output-file deploy/packaging/requirements.txt

deb: $(READY)  ## the Debian packages omniwatch and omniwatch-desk, into dist/
	deploy/packaging/build.sh

image: $(READY)  ## the container images omniwatch and omniwatch-desk, into dist/; pulls the base image
	@deploy/setup.sh buildah
	@deploy/container/build.sh

release: $(READY)  ## everything that is handed out, of the last commit, into dist/: wheel, source, .debs, images, SBOMs, SHA256SUMS
	@deploy/setup.sh buildah
	@$(BIN)/python deploy/packaging/release.py

packages:  ## every Debian package that a suite needs
	@deploy/setup.sh python3-venv $(sort $(TEST_PACKAGES) $(SYSTEM_PACKAGES) $(TARGETS_PACKAGES) $(CHAOS_PACKAGES) $(FLEET_PACKAGES) $(CHAIN_PACKAGES) $(BROWSER_PACKAGES) $(OMNI_PACKAGES) $(PATH_PACKAGES) $(CONTAINER_PACKAGES))

$(READY): tests/requirements.txt pyproject.toml
	@deploy/setup.sh python3-venv
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement tests/requirements.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

clean:  ## remove .venv and what was built
	rm -rf $(VENV) build dist

plan-pages: $(READY)  ## the generated parts of docs/plan.md, docs/zh/plan.md and docs/claims.md
	PYTHONPATH=tests $(BIN)/python tests/helpers/plan_pages.py docs

profiles: $(READY)  ## the computed sizes in deploy/profiles
	PYTHONPATH=tests $(BIN)/python tests/helpers/profile_sizes.py deploy/profiles

NOISE_DAYS ?= 7
noise: $(READY)  ## docs/noise.md: how often the rules call somebody, an hour on two cores
	@deploy/setup.sh prometheus
	@rm -f build/noise.json
	PYTHONPATH=tests $(BIN)/python -m helpers.noise.page docs/noise.md $(NOISE_DAYS) build/noise.json

pictures: $(READY)  ## docs/dashboards/*.svg, docs/live-page.png
	@deploy/setup.sh prometheus chromium fonts-wqy-microhei
	PYTHONPATH=tests $(BIN)/python -m helpers.live_page_picture docs/live-page.png
	PYTHONPATH=tests $(BIN)/python -m helpers.dashboard_pictures docs/dashboards

picture: $(READY)  ## docs/curves.svg, docs/chunks.svg
	$(BIN)/omniwatch simulate --scenario overload --speed max --start-time 0 > build-overload.jsonl
	$(BIN)/omniwatch curves build-overload.jsonl --config.file /dev/null --out docs/curves.svg
	rm build-overload.jsonl
	PYTHONPATH=tests $(BIN)/python -m helpers.chunks_picture docs/chunks.svg
