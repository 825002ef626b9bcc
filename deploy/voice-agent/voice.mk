# Targets of the voice gateway and its reference agent.
VOICE_VENV := $(CACHE)/venv-voice

# The rules of the agent that need no library are part of `make test`; the others are skipped by name without aiohttp.
test: test-agent-rules test-voice-local

.PHONY: test-agent-rules test-voice-agent test-voice-local test-livekit voice-agent voice-local bench-voice

# Made again when the requirements change.
$(VOICE_VENV)/.made: deploy/voice-agent/requirements.txt deploy/voice-agent/constraints.txt
	python3 -m venv $(VOICE_VENV)
	$(VOICE_VENV)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

# With the plugins of model providers, for the stories of the page and the terminal.
$(VOICE_VENV)-models/.made: deploy/voice-agent/requirements-models.txt deploy/voice-agent/requirements.txt deploy/voice-agent/constraints.txt
	python3 -m venv $(VOICE_VENV)-models
	$(VOICE_VENV)-models/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

test-agent-rules:
	python3 -m unittest discover -q -s deploy/voice-agent/tests

test-voice-agent: $(VOICE_VENV)/.made ## all tests of the reference agent, with its libraries
	$(VOICE_VENV)/bin/python -m unittest discover -s deploy/voice-agent/tests

test-voice-local: ## the protocol of the local models, with acted engines
	python3 -m unittest discover -q -s deploy/voice-local/tests

# The models and what runs them, about 700 MB.
$(VOICE_VENV)-local/.made: deploy/voice-local/requirements.txt deploy/voice-local/requirements-alone.txt deploy/voice-local/constraints.txt
	python3 -m venv $(VOICE_VENV)-local
	$(VOICE_VENV)-local/bin/pip install --quiet --disable-pip-version-check -r $<
	$(VOICE_VENV)-local/bin/pip install --quiet --disable-pip-version-check --no-deps -r deploy/voice-local/requirements-alone.txt
	touch $@

voice-local: $(VOICE_VENV)-local/.made ## runs the local models at http://127.0.0.1:8096/v1
	HF_HUB_OFFLINE=1 $(VOICE_VENV)-local/bin/python deploy/voice-local/server.py

test-livekit: ## the voice scenario against the LiveKit server at LIVEKIT_URL, with the reference agent, then the page's by text and by voice, and the terminal's (espeak-ng)
ifeq ($(LIVEKIT_URL),)
	@echo "skipped: test-livekit (set LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET; see services/voice-gateway/README.md)"
else
	@command -v espeak-ng >/dev/null || { echo "test-livekit needs espeak-ng, which speaks in its stories"; exit 1; }
	@$(MAKE) --no-print-directory $(VOICE_VENV)/.made
	$(CARGO) build --locked -p ensemble-voice-gateway
	VOICE_GATEWAY_BIN=target/debug/ensemble-voice-gateway $(VOICE_VENV)/bin/python deploy/voice-agent/e2e.py
	@$(MAKE) --no-print-directory $(VOICE_VENV)-models/.made web
	VOICE_AGENT_PYTHON=$(abspath $(VOICE_VENV)-models/bin/python) $(CARGO) test --locked --workspace --test stories -- a_person_talks_about_a_session
endif

voice-agent: $(VOICE_VENV)/.made ## runs the reference agent (echo mode) against LIVEKIT_URL
	$(VOICE_VENV)/bin/python deploy/voice-agent/agent.py start

bench-voice: ## what the voice gateway adds to a start, at 16 concurrent starts, on SQLite and PostgreSQL
	$(CARGO) build --release --locked -p ensemble-voice-gateway -p ensemble-doubles -p ensemble-testkit --bins --features ensemble-voice-gateway/jemalloc
	./target/release/with-postgres --durable ./target/release/voice-bench ./target/release/ensemble-voice-gateway
