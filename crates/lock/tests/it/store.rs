//! The storage kit on real databases.

/// One test for each database that the features name, each with a database of its own.
macro_rules! on_every_database {
    ($($test:ident),+ $(,)?) => {
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() { super::$test(crate::store::site::Site::postgres().await).await; })+
        }
        #[cfg(feature = "mysql")]
        mod mariadb {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() { super::$test(crate::store::site::Site::mariadb().await).await; })+
        }
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")] async fn $test() { super::$test(crate::store::site::Site::sqlite().await).await; })+
        }
    };
}

mod contention;
mod duplicates;
mod outcomes;
mod races;
mod sharing;
pub mod site;
mod transactions;
