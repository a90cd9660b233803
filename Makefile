# Everything a contributor runs, by one name each. `make test` needs Go alone.

GO        ?= go
BIN       ?= bin/leasehold
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS   := -s -w -X main.release=$(VERSION)
FUZZTIME  ?= 20s
BENCHTIME ?= 1s

BUF_VERSION          := v1.75.0
PROTOC_GEN_GO        := v1.36.12
PROTOC_GEN_GO_GRPC   := v1.6.2
PROTOC_GEN_CONNECT   := v1.21.1
GOLANGCI_VERSION     := v2.15.0

.PHONY: all build test race lint fuzz bench mutants generate clean

all: build test

build: ## one static binary in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/leasehold

# One package at a time: several start clusters of real processes, and on two
# cores they would disturb each other's elections.
test: ## all tests, under ten minutes on two cores
	$(GO) test -p 1 -timeout 15m ./...

race: ## the packages with goroutines under the race detector
	$(GO) test -race -p 1 -timeout 25m ./...

lint: ## gofmt, vet and golangci-lint (fetched as a Go module, pinned)
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt-ed:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) run

fuzz: ## each fuzz target for FUZZTIME
	$(GO) run ./.ci/fuzz -fuzztime $(FUZZTIME)

bench: ## Go benchmarks; the figures of the whole product come from `leasehold bench`
	$(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) ./...

mutants: ## break each promise in a copy of the tree: a named test must notice
	$(GO) run ./.ci/mutants $(MUTANTS)

generate: ## remake the generated code
	@mkdir -p bin/tools
	GOBIN=$(CURDIR)/bin/tools $(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
	GOBIN=$(CURDIR)/bin/tools $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO)
	GOBIN=$(CURDIR)/bin/tools $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC)
	GOBIN=$(CURDIR)/bin/tools $(GO) install connectrpc.com/connect/cmd/protoc-gen-connect-go@$(PROTOC_GEN_CONNECT)
	PATH=$(CURDIR)/bin/tools:$$PATH bin/tools/buf generate

clean:
	rm -rf bin
