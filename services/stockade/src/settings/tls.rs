//! The certificates of encrypted connections.

use std::fs;

use anyhow::{Context, Result, bail};
use stock::{ClientTlsConfig, TlsCertificates};

use super::{Layers, declaration::settings, kinds::read_by};

settings! {
    /// Certificates, as the files have them.
    Tls {
        /// PEM file of the authority that signed the servers' certificates; unset: those that
        /// browsers trust. Brokers (`tls`, `amqps`), webhooks, the address of `STOCKADE_JWKS` and the
        /// service that the command line calls may have a certificate of it too
        tls_ca: Option<Vec<u8>>, read_by(pem);
        /// PEM file of the certificate that the servers and brokers demand
        tls_cert: Option<Vec<u8>>, read_by(pem);
        /// PEM file of the private key of `STOCKADE_TLS_CERT`
        tls_key: Option<Vec<u8>>, read_by(pem);
    }
}

/// Reads the files. `None` if there are none.
pub fn read(layers: &Layers) -> Result<Option<TlsCertificates>> {
    let Tls {
        tls_ca: root_cert,
        tls_cert,
        tls_key,
    } = Tls::read(layers)?;
    let client_tls = match (tls_cert, tls_key) {
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
