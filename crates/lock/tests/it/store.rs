//! Fenced tables on real databases.

/// One test for each enabled database. Each test has its own database.
macro_rules! on_every_database {
    ($($test:ident),+ $(,)?) => {
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() { super::$test(crate::store::env::TestEnv::postgres().await).await; })+
        }
        #[cfg(feature = "mysql")]
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() { super::$test(crate::store::env::TestEnv::mariadb().await).await; })+
        }
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() { super::$test(crate::store::env::TestEnv::sqlite().await).await; })+
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
