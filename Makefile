# Signet: everything a contributor runs. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
TOOLS   := bin/tools
# Tests that need root, BPF or a slow build say so when they skip.
TESTFLAGS ?=

.PHONY: help run build test test-all soak lint generate check-generated bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

run: build ## start signet with the sample workloads: etcd, operator and agent in one process
	bin/signet dev --apply samples/workloads.json

build: ## build bin/signet
	go build -ldflags '$(LDFLAGS)' -o bin/signet ./cmd/signet

test: build ## run the tests (minutes)
	go test -timeout 20m $(TESTFLAGS) ./...

test-all: test ## the tests, then faults on real processes and the race detector
	go test -count=1 -v -timeout 60m -run 'TestSimulation$$' ./allocator/sim -args -seeds=20000
	SIGNET_NEMESIS=2m go test -count=1 -v -timeout 20m ./e2e/nemesis
	go test -race -timeout 40m -short ./allocator/... ./kvstore/... ./datapath/...

soak: ## an hour of faults on real processes
	SIGNET_NEMESIS=1h go test -count=1 -v -timeout 2h -run TestNemesis ./e2e/nemesis

lint: $(TOOLS)/golangci-lint ## vet, formatting and the rules of the house
	gofmt -l $$(git ls-files '*.go') | (! grep .)
	go vet ./...
	$(TOOLS)/golangci-lint run ./...

generate: $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc ## regenerate the wire, the BPF objects and the reference
	cd proto && PATH="$(CURDIR)/$(TOOLS):$$PATH" $(CURDIR)/$(TOOLS)/buf generate
	go generate ./bpf/...
	go generate ./cmd/...

check-generated: generate ## regenerate, and fail when that changes a committed file
	git diff --exit-code --stat -- proto bpf docs

bench: ## run the benchmarks
	go test -run '^$$' -bench . -benchtime 1s ./allocator/... ./kvstore/... ./datapath/...

clean: ## remove what was built (not signet-data)
	rm -rf bin

$(TOOLS)/golangci-lint: tools/golangci/go.mod
	cd tools/golangci && go build -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(TOOLS)/buf: tools/buf/go.mod
	cd tools/buf && go build -o ../../$@ github.com/bufbuild/buf/cmd/buf

$(TOOLS)/protoc-gen-go: go.mod
	go build -o $@ google.golang.org/protobuf/cmd/protoc-gen-go

$(TOOLS)/protoc-gen-go-grpc: go.mod
	go build -o $@ google.golang.org/grpc/cmd/protoc-gen-go-grpc
