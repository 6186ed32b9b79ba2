//! What other Redlock libraries send to a node.
//!
//! What a reader could get wrong: the scripts are worded by us. Each makes the calls of the
//! library's script, in its order, with its KEYS and ARGV, and answers what that answers; its text,
//! and so its SHA, is another. Some of the libraries try EVALSHA before EVAL, which is the same to
//! the node.

use redis::{Cmd, Value};
use testbed::Redis;

use crate::support::raw;

/// Stand for what differs from lock to lock.
const KEY: &str = "\0key";
const VALUE: &str = "\0value";
const TTL_MS: &str = "\0ttl_ms";
const TTL_S: &str = "\0ttl_s";

/// Longer than any lease of ours, so that one who extends ours by mistake is seen.
pub const PEER_TTL_S: u64 = 4 * 60 * 60;

const DELETE_IF_MINE: &str =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('DEL', KEYS[1])";
const DELETE_IF_MINE_OR_SAY_GONE: &str = "local holder = redis.call('GET', KEYS[1]) if holder == ARGV[1] then return redis.call('DEL', KEYS[1]) \
     end return holder and 0 or -1";
const EXPIRE_IF_MINE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('PEXPIRE', KEYS[1], ARGV[2])";
const EXPIRE_IF_MINE_OR_SET_IF_FREE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end \
     return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') and 1 or 0";
const SET_IF_MINE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
     return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1 or 0";
const SET_IF_FREE: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";
const EXPIRE_IF_MINE_SET_IF_FREE_MINUS_ONE_IF_ANOTHERS: &str = "local holder = redis.call('GET', KEYS[1]) \
     if not holder then return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1 or 0 end \
     if holder == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return -1";

/// All keys or none.
pub const SET_ALL_IF_ALL_FREE: &str = "for _, key in ipairs(KEYS) do if redis.call('EXISTS', key) == 1 then return 0 end end \
     for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS";
pub const SET_ALL_IF_ALL_MINE: &str = "for _, key in ipairs(KEYS) do if redis.call('GET', key) ~= ARGV[1] then return 0 end end \
     for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS";
pub const DELETE_WHAT_IS_MINE: &str = "local count = 0 for _, key in ipairs(KEYS) do \
     if redis.call('GET', key) == ARGV[1] then redis.pcall('DEL', key) count = count + 1 end end return count";

/// One library, or one way to use it.
pub struct Peer {
    pub library: &'static str,
    /// Before the name of a resource, in the name of its key.
    prefix: &'static str,
    /// As the library makes them, here always the same.
    value: &'static [u8],
    acquire: &'static [&'static str],
    /// `None`: the library cannot.
    extend: Option<&'static [&'static str]>,
    release: &'static [&'static str],
}

/// 16 bytes in base64: `genValue` in redsync's mutex.go.
const REDSYNC_VALUE: &[u8] = b"MDEyMzQ1Njc4OWFiY2RlZg==";
/// 16 bytes in hexadecimal: `_random` in node-redlock's src/index.ts and redlock.js.
const NODE_VALUE: &[u8] = b"30313233343536373839616263646566";

pub const PEERS: [Peer; 9] = [
    // github.com/go-redsync/redsync v4, commit 88f6472abefe919404334677a1818c88d0d5d460,
    // scripts.go: deleteScript, touchScript; mutex.go: acquire calls SetNX with the expiry, and the
    // key is the name. redis/redigo/redigo.go sends that as SET NX PX.
    Peer {
        library: "redsync 4 over redigo",
        prefix: "",
        value: REDSYNC_VALUE,
        acquire: &["SET", KEY, VALUE, "NX", "PX", TTL_MS],
        extend: Some(&["EVAL", EXPIRE_IF_MINE, "1", KEY, VALUE, TTL_MS]),
        release: &["EVAL", DELETE_IF_MINE_OR_SAY_GONE, "1", KEY, VALUE],
    },
    // The same. redis/goredis/v9/goredis.go leaves it to go-redis, whose SetNX in
    // string_commands.go says EX if the expiry is in whole seconds, as redsync's default of eight
    // is, and PX if it is not.
    Peer {
        library: "redsync 4 over go-redis, in seconds",
        prefix: "",
        value: REDSYNC_VALUE,
        acquire: &["set", KEY, VALUE, "ex", TTL_S, "nx"],
        extend: Some(&["EVAL", EXPIRE_IF_MINE, "1", KEY, VALUE, TTL_MS]),
        release: &["EVAL", DELETE_IF_MINE_OR_SAY_GONE, "1", KEY, VALUE],
    },
    // The same with the option WithSetNXOnExtend: touchWithSetNXScript.
    Peer {
        library: "redsync 4 that sets on extend",
        prefix: "",
        value: REDSYNC_VALUE,
        acquire: &["set", KEY, VALUE, "px", TTL_MS, "nx"],
        extend: Some(&[
            "EVAL",
            EXPIRE_IF_MINE_OR_SET_IF_FREE,
            "1",
            KEY,
            VALUE,
            TTL_MS,
        ]),
        release: &["EVAL", DELETE_IF_MINE_OR_SAY_GONE, "1", KEY, VALUE],
    },
    // github.com/mike-marcacci/node-redlock 5.0.0-beta.2, src/index.ts at commit
    // 09fd36a988fe5f6a3c0a0cb71d65a954c5056a52: ACQUIRE_SCRIPT, EXTEND_SCRIPT, RELEASE_SCRIPT; the
    // keys are the resources.
    Peer {
        library: "node-redlock 5",
        prefix: "",
        value: NODE_VALUE,
        acquire: &["EVAL", SET_ALL_IF_ALL_FREE, "1", KEY, VALUE, TTL_MS],
        extend: Some(&["EVAL", SET_ALL_IF_ALL_MINE, "1", KEY, VALUE, TTL_MS]),
        release: &["EVAL", DELETE_WHAT_IS_MINE, "1", KEY, VALUE],
    },
    // The same repository before, redlock.js at commit 3c787c2eafed57cee6a21289bc595ce59a7456ee:
    // lockScript, extendScript, unlockScript.
    Peer {
        library: "node-redlock, redlock.js",
        prefix: "",
        value: NODE_VALUE,
        acquire: &["EVAL", SET_IF_FREE, "1", KEY, VALUE, TTL_MS],
        extend: Some(&["EVAL", EXPIRE_IF_MINE, "1", KEY, VALUE, TTL_MS]),
        release: &["EVAL", DELETE_IF_MINE, "1", KEY, VALUE],
    },
    // rslock 0.10.0 (commit 3ec66fe3200ab962ebcf9999268abe35da391da9), src/lock.rs:
    // RestorableConnection::lock, EXTEND_SCRIPT, UNLOCK_SCRIPT. Its value is 20 random bytes and
    // seldom text.
    Peer {
        library: "rslock 0.10",
        prefix: "",
        value: b"\xff\xfe\x00\x80\x01rslock\r\n\0\xc3\x28\xa0\xa1\xe2\x28",
        acquire: &["SET", KEY, VALUE, "NX", "PX", TTL_MS],
        extend: Some(&["EVAL", SET_IF_MINE, "1", KEY, VALUE, TTL_MS]),
        release: &["EVAL", DELETE_IF_MINE, "1", KEY, VALUE],
    },
    // github.com/SPSCommerce/redlock-py 1.0.x, redlock/__init__.py at commit
    // 142545d54e2255594701829b7c2c1912062dfbe2: lock_instance (redis-py sends PX before NX),
    // unlock_script. It cannot extend.
    Peer {
        library: "redlock-py 1",
        prefix: "",
        value: b"aB3dE6gH9jK2mN5pQ8sT1v",
        acquire: &["SET", KEY, VALUE, "PX", TTL_MS, "NX"],
        extend: None,
        release: &["EVAL", DELETE_IF_MINE, "1", KEY, VALUE],
    },
    // github.com/samcook/RedLock.net 2.x, RedLockNet.SERedis/RedLock.cs at commit
    // 0d5cdf3d728698e93ffb1b7e331169bad3aa2fed: LockInstance is a StringSet with When.NotExists;
    // Lua/Extend.lua and Lua/Unlock.lua at commit d440ad730953ff53be07375ef8b84fcb11318961. The key
    // is RedisKeyFormat with the resource in it, and DefaultRedisKeyFormat
    // (RedLockConnectionProvider.cs at commit b78070d5dc4542ac80365561e42db0db935a0010) is
    // "redlock:{0}": who wants to exclude it calls our lock `redlock:RESOURCE`.
    Peer {
        library: "RedLock.net 2",
        prefix: "redlock:",
        value: b"6f9619ff-8b86-d011-b42d-00cf4fc964ff",
        acquire: &["SET", KEY, VALUE, "PX", TTL_MS, "NX"],
        extend: Some(&[
            "EVAL",
            EXPIRE_IF_MINE_SET_IF_FREE_MINUS_ONE_IF_ANOTHERS,
            "1",
            KEY,
            VALUE,
            TTL_MS,
        ]),
        release: &["EVAL", DELETE_IF_MINE, "1", KEY, VALUE],
    },
    // The same: StackExchange.Redis says EX if the expiry is in whole seconds.
    Peer {
        library: "RedLock.net 2, in seconds",
        prefix: "redlock:",
        value: b"6f9619ff-8b86-d011-b42d-00cf4fc964ff",
        acquire: &["SET", KEY, VALUE, "EX", TTL_S, "NX"],
        extend: Some(&[
            "EVAL",
            EXPIRE_IF_MINE_SET_IF_FREE_MINUS_ONE_IF_ANOTHERS,
            "1",
            KEY,
            VALUE,
            TTL_MS,
        ]),
        release: &["EVAL", DELETE_IF_MINE, "1", KEY, VALUE],
    },
];

impl Peer {
    /// The key that the library uses for a resource, and so the name that our lock must have.
    pub fn key(&self, resource: &str) -> String {
        format!("{}{resource}", self.prefix)
    }

    pub fn value(&self) -> Option<Vec<u8>> {
        Some(self.value.to_vec())
    }

    /// On how many of the servers the library would count a success.
    pub async fn acquire(&self, servers: &[Redis], resource: &str) -> usize {
        self.send(servers, self.acquire, resource).await
    }

    /// `None`: the library cannot.
    pub async fn extend(&self, servers: &[Redis], resource: &str) -> Option<usize> {
        match self.extend {
            Some(command) => Some(self.send(servers, command, resource).await),
            None => None,
        }
    }

    pub async fn release(&self, servers: &[Redis], resource: &str) -> usize {
        self.send(servers, self.release, resource).await
    }

    async fn send(&self, servers: &[Redis], words: &[&str], resource: &str) -> usize {
        let mut cmd = Cmd::new();
        for word in words {
            match *word {
                KEY => cmd.arg(self.key(resource)),
                VALUE => cmd.arg(self.value),
                TTL_MS => cmd.arg(PEER_TTL_S * 1000),
                TTL_S => cmd.arg(PEER_TTL_S),
                word => cmd.arg(word),
            };
        }
        let mut successes = 0;
        for server in servers {
            successes += usize::from(is_success(
                &cmd.query_async(&mut raw(server).await).await.unwrap(),
            ));
        }
        successes
    }
}

/// In all of the libraries; whatever else there is, is a surprise.
fn is_success(reply: &Value) -> bool {
    match reply {
        Value::Okay | Value::Int(1) => true,
        Value::Nil | Value::Int(0 | -1) => false,
        other => panic!("{other:?}"),
    }
}
