# The web app: its programs of npm, and the files that the edge serves. Made again only when something has changed.
TYPESCRIPT := $(wildcard $(shell git ls-files -co --exclude-standard web clients/typescript docs/openapi.json 2>/dev/null))
WEB_SOURCES := $(shell printf '%s\n' $(TYPESCRIPT) | grep -vE '^(web|clients/typescript)/tests?/')
FORMATTED := 'clients/typescript/**/*.{ts,mjs}' 'web/**/*.{ts,tsx,mjs}' eslint.config.mjs

.PHONY: web web-check format

web: ## builds the web app into web/dist; `make run` and `make test` do it when npm is there
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory web/dist/index.html; \
	else echo 'npm is missing: the program is built without the web app, and says so at its address.'; fi

web-check: web ## types, rules and formatting of TypeScript; what has not changed is not checked again
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(CACHE)/typescript-checked; fi

$(CACHE)/typescript-checked: $(TYPESCRIPT) eslint.config.mjs .prettierrc.json .prettierignore web/node_modules/.package-lock.json
	@mkdir -p $(CACHE)
	cd web && npm run --silent check
	web/node_modules/.bin/prettier --cache --cache-location $(CACHE)/prettier --log-level warn --check $(FORMATTED)
	web/node_modules/.bin/eslint --cache --cache-location $(CACHE)/eslint clients/typescript web
	@touch $@

format: web/node_modules/.package-lock.json ## writes the formatting of Rust and TypeScript
	$(CARGO) fmt
	web/node_modules/.bin/prettier --log-level warn --write $(FORMATTED)

web/dist/index.html: $(WEB_SOURCES) web/node_modules/.package-lock.json
	cd clients/typescript && npm run --silent build
	cd web && npm run --silent build

# npm writes this file when everything is installed.
web/node_modules/.package-lock.json: web/package-lock.json clients/typescript/package-lock.json
	clients/typescript/install
	cd web && npm ci --silent --no-audit --no-fund
	touch $@
