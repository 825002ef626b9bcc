# The web app: its programs of npm, and the files that the edge serves. Made again only when something has changed.
WEB_SOURCES := $(shell git ls-files -co --exclude-standard web clients/typescript docs/openapi.json 2>/dev/null | grep -vE '^(web|clients/typescript)/tests?/')

.PHONY: web web-check

web: ## builds the web app into web/dist; `make run` and `make test` do it when npm is there
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory web/dist/index.html; \
	else echo 'npm is missing: the program is built without the web app, and says so at its address.'; fi

web-check: web ## the types of the web app
	@if command -v npm >/dev/null; then cd web && npm run --silent check; fi

web/dist/index.html: $(WEB_SOURCES) web/node_modules/.package-lock.json
	cd clients/typescript && npm run --silent build
	cd web && npm run --silent build

# npm writes this file when everything is installed.
web/node_modules/.package-lock.json: web/package-lock.json clients/typescript/package-lock.json
	clients/typescript/install
	cd web && npm ci --silent --no-audit --no-fund
	touch $@
