# The image: one static binary on an empty base, for a user who is nobody. Builds with Docker (BuildKit or not), buildah
# and podman: `make image`, or
#
#   docker build --build-arg REVISION="$(git rev-parse HEAD)" --tag sexton .

# Debian's, because its C library can be linked statically; any newer toolchain does as well. podman and buildah look for
# a short name where registries.conf says, or take the whole one: --build-arg RUST_IMAGE=…
ARG RUST_IMAGE=rust:1.95-slim-bookworm

FROM ${RUST_IMAGE} AS build
WORKDIR /src

# What writes the bill of materials changes least, so it comes first.
COPY container container
RUN container/sbom --tool

COPY Cargo.toml Cargo.lock LICENSE-APACHE LICENSE-MIT ./
COPY src src
ARG REVISION=
RUN SEXTON_REVISION="${REVISION}" container/static && container/sbom

COPY rules rules
RUN container/root /image

FROM scratch
COPY --from=build /image/ /

ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="sexton" \
      org.opencontainers.image.description="A sidecar that watches the dead-letter queue of your job workers" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# So that `kubectl exec POD -- sexton stats` finds it.
ENV PATH=/
# By number, so that a cluster can tell that it is not root.
USER 65532:65532
# Where sexton.yaml is looked for, and what its relative paths begin with.
WORKDIR /etc/sexton
EXPOSE 9640
ENTRYPOINT ["/sexton"]
CMD ["run"]
