# The commands people type; each calls a script, which says more about itself.
.DEFAULT_GOAL := help
.PHONY: help install serve check test test-newest coverage conformance lock cluster release

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile
install: ## install everything for development into .venv
	scripts/install
serve: ## serve ./data on 127.0.0.1:4437
	scripts/serve
check: ## format, lint, types and the direction of imports
	scripts/check
test: ## run every check and test
	scripts/test
test-newest: ## run the core suites on the newest Python
	scripts/test-newest
coverage: ## report the coverage of each package
	scripts/coverage
conformance: ## run the official server suite
	scripts/conformance
lock: ## resolve the newest allowed versions of all packages
	scripts/lock
cluster: ## serve a cluster on this machine
	scripts/cluster
release: ## build a release and try it, without a commit or a tag
	scripts/release --dry-run
