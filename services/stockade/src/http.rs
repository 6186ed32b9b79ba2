//! The HTTP clients of this process, and which authorities they trust.

use anyhow::{Context, Result};
use reqwest::{Certificate, ClientBuilder};
use stock::TlsCertificates;

/// The authority of STOCKADE_TLS_CA, as a PEM file has it.
pub fn authority(tls: Option<&TlsCertificates>) -> Option<Vec<u8>> {
    tls?.root_cert.clone()
}

/// A client that trusts the authorities of the system, and besides them those of the PEM file
/// `authority`.
pub fn client(authority: Option<&[u8]>) -> Result<ClientBuilder> {
    let certificates =
        Certificate::from_pem_bundle(authority.unwrap_or_default()).context("STOCKADE_TLS_CA")?;
    Ok(reqwest::Client::builder().tls_certs_merge(certificates))
}
