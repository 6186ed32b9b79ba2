//! Users of Redis servers, with passwords.
//!
//! The user `default` keeps its full rights without a password. Replicas, sentinels, the testbed
//! and a judge log in as `default`, so a fault of another user does not reach them.

use local::redis::RedisKind;
use redis::cmd;

use crate::{
    Result,
    server::{Builder, Server},
};

/// A user who may do everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisUser {
    /// Its name.
    pub name: &'static str,
    /// Its password. It may have no character that a URL escapes.
    pub password: &'static str,
}

impl RedisUser {
    /// This URL of a server, a cluster or sentinels, with the user's name and password.
    pub fn at(&self, url: &str) -> String {
        let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
        format!("{scheme}://{}:{}@{rest}", self.name, self.password)
    }

    fn rules(&self) -> Vec<String> {
        let password = format!(">{}", self.password);
        ["on", &password, "~*", "&*", "+@all"]
            .map(str::to_owned)
            .into()
    }
}

impl Builder<RedisKind> {
    /// Adds this user to the server's configuration. Of several users the last one counts.
    pub fn user(self, user: &RedisUser) -> Self {
        self.config("user", &format!("{} {}", user.name, user.rules().join(" ")))
    }
}

impl Server<RedisKind> {
    /// Creates the user, or gives it its password and its rights back, also for later restarts.
    pub async fn create_user(&self, user: &RedisUser) -> Result<()> {
        let mut create = cmd("ACL");
        create.arg("SETUSER").arg(user.name).arg("reset");
        self.execute(create.arg(user.rules())).await?;
        self.execute(cmd("CONFIG").arg("REWRITE")).await
    }

    /// Removes the user, also for later restarts. Redis closes its connections.
    pub async fn remove_user(&self, user: &RedisUser) -> Result<()> {
        self.execute(cmd("ACL").arg("DELUSER").arg(user.name))
            .await?;
        self.execute(cmd("CONFIG").arg("REWRITE")).await
    }

    /// Gives the user another password until [`Server::create_user`] or a restart, and closes its
    /// connections. The password alone would not reach these: Redis asks for it only at a login.
    pub async fn change_password(&self, user: &RedisUser, other: &str) -> Result<()> {
        let mut change = cmd("ACL");
        change.arg("SETUSER").arg(user.name).arg("resetpass");
        self.execute(change.arg(format!(">{other}"))).await?;
        self.execute(cmd("CLIENT").arg("KILL").arg("USER").arg(user.name))
            .await
    }

    /// Number of connections that are logged in as the user.
    pub async fn connections_of(&self, user: &RedisUser) -> Result<usize> {
        Ok(self.clients_of(user).await?.len())
    }

    /// What `CLIENT LIST` says of each connection that is logged in as the user.
    pub async fn clients_of(&self, user: &RedisUser) -> Result<Vec<String>> {
        let clients: String = cmd("CLIENT")
            .arg("LIST")
            .query_async(&mut self.connect_for_long().await?)
            .await
            .map_err(|source| self.refused(source))?;
        let field = format!(" user={} ", user.name);
        let of_user = clients.lines().filter(|line| line.contains(&field));
        Ok(of_user.map(str::to_owned).collect())
    }
}
