# Everything a contributor runs, by one name each. `make test` needs Go alone.

GO        ?= go
BIN       ?= bin/leasehold
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS   := -s -w -X main.release=$(VERSION)
FUZZTIME  ?= 20s
BENCHTIME ?= 1s
CHAOS     ?= 10m
IMAGE     ?= leasehold:local

# Modules of their own: what they need, nobody needs who builds the product.
NESTED    := ownership/examples/clientgo raftstore/etcdapi/difftest raftstore/etcdapi/etcdbench metrics/mixin ownership/console/browsertest .ci/vuln .ci/release

BUF_VERSION          := v1.75.0
PROTOC_GEN_GO        := v1.36.12
PROTOC_GEN_GO_GRPC   := v1.6.2
PROTOC_GEN_CONNECT   := v1.21.1
PROTOC_GEN_GATEWAY   := v2.29.0
GOLANGCI_VERSION     := v2.15.0

# What releases are built with, and looked through for vulnerabilities with. A fix
# of the standard library is a new one here.
RELEASE_GO := go1.26.10
# The Go vulnerability database, as a module or a file:// URL.
VULNDB     ?= golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018

.PHONY: all build image test nested chaos race lint fuzz bench etcdbench mutants vuln release third-party generate clean

all: build test

build: ## one static binary in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/leasehold

# The image holds the binary and two empty directories that its user may write.
image: build ## a container image FROM scratch, leasehold:local
	rm -rf bin/image && mkdir -p bin/image/data bin/image/ledger
	cp $(BIN) bin/image/leasehold
	docker build -t $(IMAGE) .

# One package at a time: several start clusters of real processes, and on two
# cores they would disturb each other's elections.
TESTFLAGS ?= -p 1

test: export CGO_ENABLED = 0
test: ## all tests, 25 to 40 minutes on two cores
	$(GO) test $(TESTFLAGS) -timeout 30m ./...
	@set -e; for m in $(NESTED); do echo "in $$m:"; $(GO) -C $$m test $(TESTFLAGS) -timeout 30m ./...; done

nested: ## the modules inside this one, whose tests make test runs too
	@printf '%s\n' $(NESTED)

chaos: ## trouble for CHAOS on real processes, with counts: root makes it cut networks too
	LEASEHOLD_CHAOS=$(CHAOS) $(GO) test -count=1 -timeout 3h -v -run '^TestChaos$$' ./cmd/leasehold

race: ## the packages with goroutines under the race detector
	GORACE="suppressions=$(CURDIR)/.ci/race.suppressions" $(GO) test -race -p 1 -timeout 25m ./...

lint: ## gofmt, vet and golangci-lint (fetched as a Go module, pinned)
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt-ed:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) run
	@set -e; for m in $(NESTED); do echo "in $$m:"; (cd $$m && $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) run -c $(CURDIR)/.golangci.yml); done

fuzz: ## each fuzz target for FUZZTIME
	$(GO) run ./.ci/fuzz -fuzztime $(FUZZTIME)

bench: ## Go benchmarks; the figures of the whole product come from `leasehold bench`
	$(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) ./...

etcdbench: build ## figures beside etcd's, in one run: six minutes
	$(GO) -C raftstore/etcdapi/etcdbench run . -leasehold $(CURDIR)/$(BIN)

mutants: ## break each promise in a copy of the tree: a named test must notice
	$(GO) run ./.ci/mutants $(MUTANTS)

vuln: ## known vulnerabilities in what the product calls; no network needed the second time
	GOTOOLCHAIN=$(RELEASE_GO) $(GO) -C .ci/vuln run . -C $(CURDIR) -db $(VULNDB)

release: ## archives, SBOMs and checksums in dist/, built twice and compared; KEY=FILE signs
	$(GO) -C .ci/release run . -C $(CURDIR) -version $(VERSION) -toolchain $(RELEASE_GO) -key "$(KEY)"

third-party: ## the list of modules in the binaries with their licences
	$(GO) -C .ci/release run . -C $(CURDIR) -third-party

generate: ## remake the generated code, dashboards and rules
	@mkdir -p bin/tools
	GOBIN=$(CURDIR)/bin/tools $(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
	GOBIN=$(CURDIR)/bin/tools $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO)
	GOBIN=$(CURDIR)/bin/tools $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC)
	GOBIN=$(CURDIR)/bin/tools $(GO) install connectrpc.com/connect/cmd/protoc-gen-connect-go@$(PROTOC_GEN_CONNECT)
	GOBIN=$(CURDIR)/bin/tools $(GO) install github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway@$(PROTOC_GEN_GATEWAY)
	PATH=$(CURDIR)/bin/tools:$$PATH bin/tools/buf generate
	PATH=$(CURDIR)/bin/tools:$$PATH bin/tools/buf generate --template raftstore/etcdapi/buf.gen.yaml
	$(GO) -C metrics/mixin run ./cmd/mixin $(CURDIR)

clean:
	rm -rf bin dist
