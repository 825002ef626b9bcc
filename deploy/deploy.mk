# Images, compose, the chart. What needs an engine or a tool that is not there says so by name and is skipped.
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
BUILD_PROFILE ?= dist
HELM_VERSION ?= latest
DEPLOY_TOOLS := $(CACHE)/deploy

.PHONY: dist dist-test images compose-test upgrade-test compose-file-test backup-test partitions-test chart-test chart-server-test chart-readme chart-package dashboards release-check \
	publish publish-archive publish-builder publish-login

dist: ## a release archive with the one program, its SBOM and checksums, in dist/
	@deploy/dist/dist.sh

dist-test: ## every way to install, with the program of `make dist`: install.sh, npm, Debian, update
	@deploy/test/dist.sh

images: ## builds every image (BUILD_PROFILE=release is quicker and larger)
	@BUILD_PROFILE=$(BUILD_PROFILE) VERSION=$(VERSION) deploy/test/images.sh

compose-file-test: $(DEPLOY_TOOLS)/ready ## what docker-compose.yml gives each container: variables, secrets, limits; needs target/debug
	@$(DEPLOY_TOOLS)/venv/bin/python deploy/test/compose_file.py

upgrade-test: ## deploy/compose/upgrade.sh on an engine, with small stand-ins for the services
	@deploy/test/upgrade.sh

compose-test: ## docker compose up, the whole scenario through its port, faults, rolling restart
	@deploy/test/compose.sh

partitions-test: ## all tests of session-store against a table of messages in partitions; needs target/debug
	@deploy/test/partitions.sh

backup-test: ## backups of a real PostgreSQL: encrypted, refused, restored, removed; needs target/debug
	@deploy/test/backup.sh

chart-test: $(DEPLOY_TOOLS)/ready ## renders the chart and checks it strictly against the last three Kubernetes
	@$(DEPLOY_TOOLS)/venv/bin/python deploy/test/chart.py --tools $(DEPLOY_TOOLS)

chart-server-test: $(DEPLOY_TOOLS)/ready ## the chart on a real API server, without what runs pods: needs kube-apiserver and etcd (or KUBE_APISERVER=, ETCD=)
	@$(DEPLOY_TOOLS)/venv/bin/python deploy/test/chart_server.py --tools $(DEPLOY_TOOLS)

chart-readme: ## writes the chart's README.md with its table of values
	python3 deploy/helm/readme.py

chart-package: $(DEPLOY_TOOLS)/ready ## the chart as one file in dist/, to be pushed with `helm push FILE oci://REGISTRY`
	@mkdir -p dist
	@$(DEPLOY_TOOLS)/bin/helm package deploy/helm/ensemble --destination dist

release-check: $(DEPLOY_TOOLS)/ready ## what a release is made with, up to the push
	@deploy/test/release.sh $(DEPLOY_TOOLS)

publish: $(DEPLOY_TOOLS)/ready ## pushes and signs images and chart: REGISTRY=registry.example.com/ (DRY_RUN=1 says what it would do)
	@VERSION=$(if $(filter command line environment,$(origin VERSION)),$(VERSION)) deploy/release/publish.sh

publish-archive: ## puts what `make dist` has made into the forge's release of the tag: VERSION=1.2.3 (DRY_RUN=1 says what it would do)
	@VERSION=$(if $(filter command line environment,$(origin VERSION)),$(VERSION)) deploy/release/archive.sh

publish-builder: ## makes the builder for several processors that publish uses
	@deploy/release/builder.sh

publish-login: $(DEPLOY_TOOLS)/ready ## signs in at REGISTRY with REGISTRY_USER and REGISTRY_PASSWORD
	@deploy/release/login.sh

dashboards: ## writes Grafana's dashboards again
	python3 deploy/grafana/dashboards.py

$(DEPLOY_TOOLS)/ready: deploy/test/tools.sh deploy/test/requirements.txt
	@HELM_VERSION=$(HELM_VERSION) deploy/test/tools.sh $(DEPLOY_TOOLS)
	@touch $@
