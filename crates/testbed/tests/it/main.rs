//! What the other crates' tests rely on: servers that are really ours, keep what they promise to keep, and are gone afterwards.

#![allow(clippy::unwrap_used)]

mod clock;
mod cluster;
mod daemon;
mod disk;
mod etcd;
mod lifetime;
mod mariadb;
mod postgres;
mod proxy;
mod redis;
mod replication;
mod sentinel;
mod support;
mod zookeeper;
