//! What the other crates' tests rely on: servers that are really ours, keep what they promise to keep, and are gone afterwards.

#![allow(clippy::unwrap_used)]

mod cluster;
mod etcd;
mod lifetime;
mod mariadb;
mod postgres;
mod redis;
mod replication;
mod sentinel;
mod support;
mod zookeeper;
