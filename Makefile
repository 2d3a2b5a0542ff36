# Two commands for a fresh machine with a Rust toolchain: `make demo` and `make test`. Both get what is missing.

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help demo test bench lint doc static sbom image need-redis need-faketime need-alertmanager need-promtool need-schemathesis \
	need-kubeschemas need-helm

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: need-redis ## see it all on a private Redis, in less than a minute
	$(CARGO) run --locked -- demo

test: need-helm ## run every test; needs no network once dependencies are fetched
	$(CARGO) test --locked --doc
	$(CARGO) test --locked --lib --bins --tests

bench: need-redis ## measure against bare loops on this machine (release build)
	$(CARGO) bench --locked --bench figures

lint: ## rustfmt and clippy, warnings are errors
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

doc: ## build the API documentation, warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --document-private-items

# What `sexton --version`, sexton_build_info and the image's label tell.
REVISION ?= $(shell git describe --always --dirty --abbrev=12 --match '' 2>/dev/null)
IMAGE ?= sexton

static: ## build the static binary of the image: target/static/sexton
	SEXTON_REVISION=$(REVISION) container/static

sbom: ## write its bill of materials: target/static/sexton.cdx.json
	container/sbom

image: ## build the container image with what is there: docker, podman or buildah
	@for engine in docker podman buildah; do \
	    if $$engine info >/dev/null 2>&1; then \
	        set -x; exec $$engine build --build-arg REVISION=$(REVISION) \
	            $(if $(RUST_IMAGE),--build-arg RUST_IMAGE=$(RUST_IMAGE)) --tag $(IMAGE) .; \
	    fi; \
	done; \
	echo "none of docker, podman and buildah works here; \`make static\` builds the binary alone" >&2; exit 1

need-redis:
	@sh .ci/need redis

# One after the other: a package manager does one thing at a time.
need-faketime: need-redis
	@sh .ci/need faketime

need-alertmanager: need-faketime
	@sh .ci/need alertmanager

need-promtool: need-alertmanager
	@sh .ci/need promtool

need-schemathesis: need-promtool
	@sh .ci/need schemathesis

need-kubeschemas: need-schemathesis
	@sh .ci/need kubeschemas

need-helm: need-kubeschemas
	@sh .ci/need helm
