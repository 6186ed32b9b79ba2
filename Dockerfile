# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
# The image has gcc and the headers of the C library, which is all that ring, mimalloc and SQLite
# need. SQLite is built from source: the ledger needs 3.42, and Debian 12 has 3.40.
WORKDIR /src
COPY . .
# `target` is a cache and not part of the image, so this step also copies the binary.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --profile dist -p stockade && cp target/dist/stockade /usr/local/bin/stockade

# The same Debian release as the builder: the binary needs its C library.
FROM debian:bookworm-slim
# The authorities are for the address of a key set (STOCKADE_JWKS).
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local/bin/stockade /usr/local/bin/stockade
# scripts/compose_images.sh gives what follows to the image that it makes where there is no
# registry.
USER 10001:10001
WORKDIR /srv
ENV STOCKADE_LISTEN=0.0.0.0:8080
EXPOSE 8080
# Whether it lives, not whether it is ready: a restart does not repair Redis or SQL, and loses the
# answers of orders in flight.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["stockade", "health"]
ENTRYPOINT ["stockade"]
CMD ["serve"]
