//! Guarantees that the tests of other crates rely on: a server is our own process, keeps the data
//! that it should keep, and is gone afterwards.

#![allow(clippy::unwrap_used)]

mod clock;
mod cluster;
mod contract;
mod daemon;
mod disk;
mod etcd;
mod lifetime;
mod mariadb;
mod nats;
mod postgres;
mod proxy;
mod rabbitmq;
mod redis;
mod replication;
mod sentinel;
mod support;
mod user;
mod zookeeper;
