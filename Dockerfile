# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
# This image has gcc and the headers of the C library, and that is all that aws-lc-sys, SQLite and mimalloc need.
WORKDIR /src
COPY . .
# The caches outlive the build, so the binary has to leave `target` in the same step.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release -p stockade && cp target/release/stockade /usr/local/bin/stockade

# The Debian release of the builder: the binary asks for its C library.
FROM debian:bookworm-slim
# For the health check.
RUN apt-get update \
    && apt-get install -y --no-install-recommends curl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin stockade
COPY --from=build /usr/local/bin/stockade /usr/local/bin/stockade
USER stockade
WORKDIR /srv
ENV STOCKADE_LISTEN=0.0.0.0:8080
EXPOSE 8080
# /healthz, not /readyz: a restart does not bring Redis or SQL back, and costs the orders under way their answers.
HEALTHCHECK --interval=5s --timeout=2s --start-period=30s --retries=3 \
    CMD ["curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1:8080/healthz"]
ENTRYPOINT ["stockade"]
CMD ["serve"]
