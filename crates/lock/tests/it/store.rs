//! Fenced tables on real databases.

/// Makes a test of a function for each enabled database. Each test has its own database.
macro_rules! on_every_database {
    ($test:ident) => {
        mod $test {
            #[cfg(feature = "postgres")]
            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                super::$test($crate::store::env::TestEnv::postgres().await).await;
            }

            #[cfg(feature = "mysql")]
            #[tokio::test(flavor = "multi_thread")]
            async fn mariadb() {
                super::$test($crate::store::env::TestEnv::mariadb().await).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                super::$test($crate::store::env::TestEnv::sqlite().await).await;
            }
        }
    };
}

mod contention;
mod duplicates;
pub mod env;
mod outcomes;
mod races;
mod sharing;
mod transactions;
