//! What the database servers share: three kinds of locks, and a database with their tables.

pub const ROW: u8 = 0;
pub const ADVISORY: u8 = 1;
pub const FOR_UPDATE: u8 = 2;

/// The servers of a backend, and its locks of each kind.
macro_rules! sql_locks {
    ($env:ident, $server:ty, $shared:ident, $database:ty) => {
        pub struct $env<const KIND: u8> {
            pub url: String,
            server: Option<$server>,
        }

        /// A lock of that kind.
        pub fn lock(kind: u8, builder: SqlLockBuilder<$database>) -> Arc<dyn Lock> {
            lock_of(kind, builder.retry(ms(50)))
        }

        fn lock_of(kind: u8, builder: SqlLockBuilder<$database>) -> Arc<dyn Lock> {
            match kind {
                ROW => Arc::new(builder.build().unwrap()),
                ADVISORY => Arc::new(builder.build_advisory().unwrap()),
                _ => Arc::new(builder.build_for_update().unwrap()),
            }
        }

        /// URL of a database with the tables, created once.
        pub async fn shared_url() -> &'static str {
            static URL: OnceCell<String> = OnceCell::const_new();
            URL.get_or_init(async || with_tables($shared().await, "locks").await)
                .await
        }

        async fn with_tables(server: &$server, name: &str) -> String {
            let url = server.create_database(name).await.unwrap();
            SqlLockBuilder::<$database>::connect(&url)
                .build_for_update()
                .unwrap()
                .create_table()
                .await
                .unwrap();
            url
        }

        impl<const KIND: u8> $env<KIND> {
            fn builder(&self, lease: Duration) -> SqlLockBuilder<$database> {
                SqlLockBuilder::connect(&self.url)
                    .lease(lease)
                    .timeout(answer_timeout(lease))
            }

            fn server(&mut self) -> &mut $server {
                self.server
                    .as_mut()
                    .expect("shared servers are never stopped")
            }
        }
    };
}

/// What does not depend on the backend of its `TestEnv`.
macro_rules! sql_env {
    ($server:ty) => {
        async fn shared() -> &'static Self {
            // Leaks a few bytes for each test.
            Box::leak(Box::new(Self {
                url: shared_url().await.to_owned(),
                server: None,
            }))
        }

        async fn own() -> Self {
            let server = <$server>::start().await.unwrap();
            Self {
                url: with_tables(&server, "locks").await,
                server: Some(server),
            }
        }

        async fn client_with_lease(&self, lease: Duration) -> Arc<dyn Lock> {
            lock(KIND, self.builder(lease))
        }

        async fn seldom_client(&self) -> Arc<dyn Lock> {
            lock_of(KIND, self.builder(Self::LEASE).retry(HOUR))
        }

        async fn client_with_delay(&self, delay: Duration) -> Arc<dyn Lock> {
            lock(KIND, self.builder(Self::LEASE).lock_delay(delay))
        }

        async fn make_unavailable(&mut self) {
            self.server().kill().await.unwrap();
        }

        async fn make_available(&mut self) {
            self.server().restart().await.unwrap();
        }
    };
}

pub(super) use {sql_env, sql_locks};
