//! What every deletion answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// It is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deleted {
    /// Always true: what could not be deleted is a problem.
    pub success: bool,
}

impl Deleted {
    pub const DONE: Self = Self { success: true };
}
