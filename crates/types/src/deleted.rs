//! The response of every deletion.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The resource was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(examples(json!({"success": true})))]
pub struct Deleted {
    /// Always true. A deletion that fails is reported as a problem.
    pub success: bool,
}

impl Deleted {
    pub const DONE: Self = Self { success: true };
}
