# What one can do here; every target installs what it needs, once, into .venv/.
#   .venv/.test    the services, the SDK, the command line and the tools of `make test` and `make check`
#   .venv/.ready   also what the demo, its Spark report and the load need (PySpark is a large download)
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
USERS ?= 50
SECONDS ?= 30
HOST ?= http://127.0.0.1:8080
SEEDS ?= 400
FIRST ?= 0
SCENARIO ?= kill-leader
SEED ?= 1
KILLS ?= 20
ROWS ?= 1000000
GROUPS ?= 1
FRAMES ?= 1000000
CASES ?= 20000
JOBS ?= 3
BEFORE ?= ../before
ORDERS ?= 5000

# In the environment, not as an option, because only so does it also bind what pip builds packages with.
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Empty: bytecode is kept, whatever the shell says. Else each worker of the tests and each process of a mesh compiles everything anew.
export PYTHONDONTWRITEBYTECODE :=
# These read the data set or Arrow, which only .venv/.ready has.
DEMO_TESTS := tests/unit/spark tests/unit/demo
# Tests that only compute share the cores, JOBS at a time: one more than two cores, because some of them wait. Those with meshes of real processes
# have the machine to themselves, and wait for the most part: two files of them at a time, in this order: the longest files come first.
SHARED_TESTS := tests/sim tests/crash tests/test_tidy.py tests/test_house.py tests/test_prose.py tests/test_security_document.py tests/unit
ALONE_TESTS := tests/secure tests/procs tests/mesh
TWO_FILES := -n 2 --dist loadfile --no-loadscope-reorder
# With ARGS one of the two may have nothing to do, which pytest calls 5.
PYTEST_DONE = || [ $$? -eq 5 -a -n "$(ARGS)" ]
PIP_INSTALL = $(BIN)/python -m pip install -q --retries 10

.DEFAULT_GOAL := help
.PHONY: help install run down test campaigns shake shake-meshes test-spark test-pipeline kill-spark spark-cluster object-store test-failover test-mixed crash-states sim chaos reloads flood doors orders contract fuzz blocking check compose-test bench bench-growth bench-store bench-raft bench-delivery bench-transactions bench-spark load interop packages-test clean wipe

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

install: .venv/.ready ## Install everything into .venv/

run: .venv/.ready ## Start the mesh, send the 336,776 flights through it, report with Spark; the mesh stays up (ARGS=--kill-leader)
	$(BIN)/ternmq up
	$(BIN)/ternmq demo flights $(ARGS)

down: .venv/.test ## Stop the mesh that `make run` left; its data stays in .tern/
	$(BIN)/ternmq down

test: .venv/.test ## Run all tests but those of Spark and the demo's data (ARGS='-k name' chooses)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(SHARED_TESTS) $(DEMO_TESTS:%=--ignore=%) $(ARGS) $(PYTEST_DONE)
	$(BIN)/python -m pytest $(TWO_FILES) $(ALONE_TESTS) $(ARGS) $(PYTEST_DONE)

campaigns: .venv/.test ## Run what `make test` has a part of with all its cases: power cuts, corruptions, a million timers
	TERNMQ_CAMPAIGNS=whole $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m campaign $(SHARED_TESTS) $(DEMO_TESTS:%=--ignore=%) $(ARGS)

shake: .venv/.test ## Run the unit tests on a loop of a busy machine, to find those that would fail on one some day (SEED=1)
	TERNMQ_SHAKE_SEED=$(SEED) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -p tests.support.shaken_loop tests/unit $(DEMO_TESTS:%=--ignore=%) $(ARGS)

shake-meshes: .venv/.test ## Run the tests of real meshes while processes of theirs stand still now and then (SEED=1)
	TERNMQ_SHAKE_SEED=$(SEED) $(BIN)/python -m pytest $(TWO_FILES) -p tests.support.shaken_mesh $(ALONE_TESTS) $(ARGS)

test-spark: .venv/.ready ## Run the tests of the Spark source and of the demo's data; needs Java 17
	@command -v java >/dev/null || { echo "No java on the PATH: install Java 17, for example openjdk-17-jre-headless."; exit 1; }
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/spark $(DEMO_TESTS) $(ARGS)

test-pipeline: .venv/.ready ## Run the hard cases of the Spark pipeline: Connect, machines that die, 10,000 queues, backups; 3 minutes
	@command -v java >/dev/null || { echo "No java on the PATH: install Java 17, for example openjdk-17-jre-headless."; exit 1; }
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/pipeline $(ARGS)

kill-spark: .venv/.ready ## Kill the driver of a pipeline from topic to topic KILLS=20 times (SEED=1, GROUPS=1 or 2), and look for what is lost or twice
	TERNMQ_SPARK_GROUPS=$(GROUPS) TERNMQ_SPARK_KILLS=$(KILLS) TERNMQ_SPARK_KILL_SEED=$(SEED) $(BIN)/python -m pytest -q -s tests/spark/test_spark_pipeline_killed.py $(ARGS)

spark-cluster: .venv/.ready ## Archive, verify and replay on a Spark cluster over a secure mesh while machines of both die (ROWS=1000000)
	$(BIN)/python -m tests.cluster --rows $(ROWS) $(ARGS)

object-store: .venv/.ready .venv/bin/versitygw ## Archive into an S3 store that is killed meanwhile, as the jobs are (ARGS='--rounds 40 --seed 2'); needs Go
	$(BIN)/python -m tests.objectstore $(ARGS)

crash-states: .venv/.test ## Recover the store from 50,000 states that a power cut may leave (ARGS='--seeds 20' for more)
	$(BIN)/python -m tests.crash.enumerate_states $(ARGS)

sim: .venv/.test ## Simulate broker groups under faults: SEEDS=400 FIRST=0 (ARGS='--seed 17' replays one, with a trace)
	$(BIN)/python -m tests.sim --seeds $(SEEDS) --first $(FIRST) $(ARGS)

test-failover: .venv/.test ## The tests of tests/mesh again, each with the leader killed in its middle (SEED=1)
	TERNMQ_FAILOVER_SEED=$(SEED) $(BIN)/python -m pytest -q tests/mesh $(ARGS)

test-mixed: .venv/.test ## The tests of tests/mesh with brokers, and then with proxies, of another checkout (BEFORE=../before)
	for role in broker proxy; do \
	  PYTHONPATH=tests/support/mixed TERNMQ_MIXED_TREE=$(BEFORE) TERNMQ_MIXED_ROLE=$$role $(BIN)/python -m pytest -q tests/mesh $(ARGS) || exit 1; \
	done

chaos: .venv/.test ## Kill, pause, cut off and damage real brokers under load (SCENARIO=kill-leader; ARGS='--trials 50')
	$(BIN)/python -m tests.chaos $(SCENARIO) $(ARGS)

compose-test: .venv/.test ## Build the images, bring the deployment up in Docker, hold it to its promises, take it down (ARGS="--demo --load")
	$(BIN)/python -m tests.compose $(ARGS)

reloads: .venv/.test ## Renew all certificates of a secure mesh under load, a hundred times (ARGS='--times 10')
	$(BIN)/python -m tests.secure.reloads $(ARGS)

flood: .venv/.test ## Strangers at every port of a mesh, 120 s (ARGS='--seconds 600')
	$(BIN)/python -m tests.flood $(ARGS)

doors: .venv/.test ## A steady client beside those who ask too much: readers, tenants, strangers; in the clear and secure, 6 minutes (ARGS="--only clear")
	$(BIN)/python -m tests.doors $(ARGS)

orders: .venv/.test ## Run the order service of examples/ while a leader and a proxy die: ORDERS=5000
	TERNMQ_EXAMPLE_ORDERS=$(ORDERS) $(BIN)/python -m pytest --timeout 1800 tests/procs/test_orders_example.py $(ARGS)

contract: .venv/.test ## Ask the live HTTP API what its own document allows and forbids: CASES=20000 SEED=1 (ARGS='--only putTopic')
	$(BIN)/python -m tests.contract --cases $(CASES) --seed $(SEED) $(ARGS)

fuzz: .venv/.test ## A million hostile frames at the Raft port of a node in memory (FRAMES=1000000)
	$(BIN)/python -m tests.fuzz.raft_port --frames $(FRAMES) $(ARGS)

blocking: .venv/.test ## Make the blocking half of the SDK from the async one
	$(BIN)/python -m tests.support.client.blocking_half

check: .venv/.test ## Lint, format, types, the SDK's blocking half, the tidy tests, the pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.support.client.blocking_half --check
	$(BIN)/python -m pytest -q tests/test_tidy.py tests/test_house.py tests/test_prose.py tests/unit/docs

bench: .venv/.test ## Measure a fresh mesh of its own: a table, and one JSON line per figure in .tern/bench/
	$(BIN)/python -m loadtest.bench mesh $(ARGS)
	$(BIN)/python -m loadtest.bench parked -o .tern/bench/parked.json $(ARGS)

bench-store: .venv/.test ## Measure the store beside bare file loops: 3 minutes, 12 GB of disk (ARGS=--quick: 20 s, 5 GB)
	$(BIN)/python -m loadtest.bench.store $(ARGS)

bench-growth: .venv/.test ## Measure small sends with more connections, larger bodies, more topics, more proxies: 2 minutes
	$(BIN)/python -m loadtest.bench.growing $(ARGS)

bench-raft: .venv/.test ## Measure a replicated log of three processes beside the same disk: about 2 minutes
	$(BIN)/python -m loadtest.bench.raft $(ARGS)

bench-delivery: .venv/.test ## Measure delivery in meshes of its own: order, keys, delay, filters, topics, backlogs (ARGS='--scale 0.1 fifo')
	$(BIN)/python -m loadtest.bench.delivery $(ARGS)

bench-transactions: .venv/.test ## Measure transactions, and what 100,000 open ones cost: about 5 minutes (ARGS='--scale 0.1 speed')
	$(BIN)/python -m loadtest.bench.transactions $(ARGS)

bench-spark: .venv/.ready ## Measure Spark's reads, streams, writes and archive on a mesh of its own: 15 minutes, 24 GB (ARGS='--rows 100000'); needs Java 17
	$(BIN)/python -m loadtest.bench.spark $(ARGS)

load: .venv/.ready ## Load the running mesh with Locust: USERS=50 SECONDS=30 HOST=http://127.0.0.1:8080
	@mkdir -p .tern/load
	$(BIN)/locust -f loadtest/locustfile.py --headless --only-summary -u $(USERS) -r $(USERS) -t $(SECONDS)s \
	  --host $(HOST) --html .tern/load/report.html
	@echo "Report: .tern/load/report.html"

interop: .venv/.test ## Export stores, have a real Apache RocketMQ 5 serve them, compare every message; needs Java 17 and Maven
	@command -v javac >/dev/null || { echo "No javac on the PATH: install a JDK 17, for example openjdk-17-jdk-headless."; exit 1; }
	@command -v mvn >/dev/null || { echo "No mvn on the PATH: install Maven."; exit 1; }
	$(BIN)/python -m tests.interop $(ARGS)

packages-test: .venv/.test ## Build the wheels, install the SDK, everything, and Spark's source outside the repository, run each (ARGS=--without-spark)
	$(BIN)/python -m tests.packages $(ARGS)

clean: ## Remove .venv/ and what the tools left; data in .tern/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist spark-warehouse
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

wipe: .venv/.test ## Stop the mesh and delete its data in .tern/
	$(BIN)/ternmq down
	rm -rf .tern

# A half-made environment (an interrupted run) is made again; a stamp appears only after everything else worked.
.venv/.made:
	@$(PYTHON) deploy/interpreter.py
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.test: .venv/.made pyproject.toml libs/pyproject.toml constraints.txt
	@echo "install: services, SDK, command line and test tools (about half a minute)"
	@$(PIP_INSTALL) -e libs -e '.[dev]'
	@touch $@

.venv/bin/versitygw: .venv/.made
	@command -v go >/dev/null || { echo "No go on the PATH: install Go 1.25 or newer."; exit 1; }
	@echo "install: an S3-compatible store, built from its sources (a few minutes)"
	@GOBIN=$(abspath .venv/bin) go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	@touch $@

.venv/.ready: .venv/.test
	@echo "install: Spark, its data set and Locust (PySpark is 460 MB: a few minutes the first time)"
	@$(PIP_INSTALL) -e libs -e '.[demo,dev,load,connect,tables]'
	@touch $@
	@echo "install: done"
