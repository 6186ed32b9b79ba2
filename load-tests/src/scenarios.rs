//! The scenarios, a file each.

mod limit_abusers;
mod retry_storm;
mod returns;
mod rush;
mod whole_life;
mod window_shoppers;

pub use self::{
    limit_abusers::LIMIT_ABUSERS, retry_storm::RETRY_STORM, returns::RETURNS, rush::RUSH,
    whole_life::WHOLE_LIFE, window_shoppers::WINDOW_SHOPPERS,
};
