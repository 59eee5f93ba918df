# `make` prints the targets. On a Debian 12 machine with Go, make and git nothing has to be typed before any of
# them: what is missing is installed (as root) or built once, and kept in the user's cache folder.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PKG ?= ./...
ARGS ?= get vmstatestores,vmstatebackups,vmstaterestores,vms,vmis,pvc,pods --all-namespaces
FUZZTIME ?= 20s
IMAGE ?= localhost/vmstate:dev

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/vmstate
TOOLS := $(CACHE)/tools/$(shell { go version; cat test/tools/go.mod test/tools/go.sum; } | sha256sum | cut -c1-16)
LINT := $(TOOLS)/golangci-lint
CONTROLLER_GEN := $(TOOLS)/controller-gen
CLUSTER := go -C test/cluster run ./cmd/cluster
# Modules with code of their own. Those below test/cluster/tools only pin what the cluster is built from.
MODULES := $(patsubst %/go.mod,%,$(wildcard go.mod test/cluster/go.mod test/guest/go.mod test/bench/go.mod))
MODULES := $(patsubst go.mod,.,$(MODULES))
# What the tree holds, changes and new files included.
TREE := { git status --porcelain; git diff HEAD; git ls-files -z --others --exclude-standard | xargs -0r sha256sum; } | sha256sum

.PHONY: help
help: # its own line would only be noise
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "%s%s\n", sep, substr($$0, 5); sep = "\n" } \
		/^[a-z0-9-]+:.*## / { printf "  %-14s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Daily

.PHONY: test
test: parts ## Unit and API server suites of all modules with the race detector; PKG=./pkg/backup for one package
ifeq ($(PKG),./...)
	@# The test cluster's packages one by one: one of them counts this machine's loop devices and mounts.
	@for m in $(MODULES); do echo "== $$m"; one=; [ $$m != test/cluster ] || one='-p 1'; go test -C $$m -race $$one -timeout 40m ./...; done
else
	go test -race -timeout 40m $(PKG)
endif

.PHONY: check
check: $(LINT) $(CONTROLLER_GEN) ## What CI runs before the tests: generated files, format, lint; fails if it leaves the tree changed
	@before=$$($(TREE)); $(MAKE) generate format lint; after=$$($(TREE)); \
	if [ "$$before" != "$$after" ]; then \
		git status --short; \
		echo "check: the tree has changed: commit what 'make generate' and 'make format' made" >&2; exit 1; \
	fi

.PHONY: lint
lint: $(LINT) ## Linters, vet and import walls (.golangci.yml), in every module
	@for m in $(MODULES); do echo "lint $$m"; (cd $$m && $(LINT) run --config $(CURDIR)/.golangci.yml ./...); done
	@# The command line is for desks as well. More than one package is compiled and not linked, which is enough.
	@for os in darwin windows; do echo "build kubectl-vmstate for $$os"; GOOS=$$os CGO_ENABLED=0 go build ./cmd/kubectl-vmstate ./pkg/repository/...; done

.PHONY: format
format: # part of check
	@gofmt -l -w $$(git ls-files --cached --others --exclude-standard '*.go')

##@ Generated files

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Deepcopy, CRDs and the manager's role from the markers in api and controllers
	@$(CONTROLLER_GEN) object crd paths=./api/... output:crd:dir=config/crd
	@if ls controllers/*.go >/dev/null 2>&1; then \
		$(CONTROLLER_GEN) rbac:roleName=vmstate-manager paths=./controllers/... output:rbac:dir=config/rbac; \
	fi

##@ Build

.PHONY: build
build: ## Static binaries into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/ ./cmd/...

.PHONY: image
image: build ## The product's image in the real cluster, without a container engine; IMAGE=localhost/vmstate:dev
	$(CLUSTER) load-image $(IMAGE) $(addprefix $(CURDIR)/bin/,manager mover witness)

##@ Real cluster

.PHONY: cluster
cluster: deps ## A one-node Kubernetes with snapshots, S3 server and KubeVirt on this machine (root)
	$(CLUSTER) build
	$(CLUSTER) up

.PHONY: cluster-down
cluster-down: ## Remove that cluster: processes, mounts, loop devices, cgroups, namespaces
	$(CLUSTER) down

.PHONY: kubectl
kubectl: ## kubectl in that cluster; ARGS='get pods -A'
	@$(CLUSTER) kubectl $(ARGS)

.PHONY: demo
demo: ## Back up a running VM with vTPM and EFI, lose it, restore it, boot it; in KUBECONFIG's cluster if set
	@[ -n "$${KUBECONFIG:-}" ] || $(CLUSTER) deps
	@go run ./test/e2e/demo

.PHONY: e2e
e2e: ## The whole way on the real cluster, checked; removes the cluster that it made
	@if [ -z "$${KUBECONFIG:-}" ]; then $(CLUSTER) deps; trap '$(CLUSTER) down' EXIT; fi; \
	go test -tags e2e -count=1 -timeout 80m -v ./test/e2e

##@ Measuring

.PHONY: bench
bench: ## The engine against restic and kopia, with ratios; ARGS='-only unchanged -rounds 1', ARGS=-h for the rest
	@$(CLUSTER) build --only s3
	@go -C test/bench run . $(if $(filter-out file,$(origin ARGS)),$(ARGS))

.PHONY: fuzz
fuzz: ## Every fuzz target for FUZZTIME=20s each, with what CPU nobody else wants
	@failed=0; for p in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -rn1 dirname | sort -u); do \
		for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | cut -c6-); do \
			echo "$$p $$f"; \
			nice -n 19 go test -C $$p -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 50x . || failed=1; \
		done; \
	done; exit $$failed

##@ What tests need

.PHONY: deps
deps: ## Install the missing Debian packages (root)
	@$(CLUSTER) deps

.PHONY: parts
parts: deps ## Build API server, etcd and the other real parts of the suites, once
	@$(CLUSTER) build --only control-plane,csi,s3,crds

# The folder's name is a hash of what the tools are built from, so one that is there is the right one.
$(TOOLS)/%:
	@echo "Building $(@F) from test/tools, once: a minute or two"
	@cd test/tools && GOBIN=$(TOOLS) CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' $$(go list -f '{{.ImportPath}}' tool | grep '/$(@F)$$')
