//! The certificates of encrypted connections to Redis.

use std::fs;

use anyhow::{Context, Result, bail};
use stock::{ClientTlsConfig, TlsCertificates};

use super::Layers;

/// Reads the files. `None` if there are none.
pub fn read(layers: &Layers) -> Result<Option<TlsCertificates>> {
    let root_cert = pem(layers, "tls_ca")?;
    let client_tls = match (pem(layers, "tls_cert")?, pem(layers, "tls_key")?) {
        (None, None) => None,
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig {
            client_cert,
            client_key,
        }),
        _ => bail!("STOCKADE_TLS_CERT and STOCKADE_TLS_KEY: expected both or none"),
    };
    let any = root_cert.is_some() || client_tls.is_some();
    Ok(any.then_some(TlsCertificates {
        client_tls,
        root_cert,
    }))
}

fn pem(layers: &Layers, key: &str) -> Result<Option<Vec<u8>>> {
    let Some(path) = layers.text(key) else {
        return Ok(None);
    };
    let place = layers.place(key);
    let bytes = fs::read(&path).with_context(|| format!("{place}: cannot read {path}"))?;
    if !bytes.starts_with(b"-----BEGIN ") && !contains(&bytes, b"\n-----BEGIN ") {
        bail!("{place}: expected a PEM file, found {path}");
    }
    Ok(Some(bytes))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
