# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
# The image has gcc and the headers of the C library, which is all that ring and mimalloc need. SQLite comes from Debian.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libsqlite3-dev pkg-config \
    && rm -rf /var/lib/apt/lists/*
ENV LIBSQLITE3_SYS_USE_PKG_CONFIG=1
WORKDIR /src
COPY . .
# `target` is a cache and not part of the image, so this step also copies the binary.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --profile dist -p stockade && cp target/dist/stockade /usr/local/bin/stockade

# The same Debian release as the builder: the binary needs its C library.
FROM debian:bookworm-slim
# curl is for the health check.
RUN apt-get update \
    && apt-get install -y --no-install-recommends curl libsqlite3-0 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin stockade
COPY --from=build /usr/local/bin/stockade /usr/local/bin/stockade
USER stockade
WORKDIR /srv
ENV STOCKADE_LISTEN=0.0.0.0:8080
EXPOSE 8080
# /healthz, not /readyz: a restart does not repair Redis or SQL, and loses the answers of orders in flight.
HEALTHCHECK --interval=5s --timeout=2s --start-period=30s --retries=3 \
    CMD ["curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1:8080/healthz"]
ENTRYPOINT ["stockade"]
CMD ["serve"]
