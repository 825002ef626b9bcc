//! What the attempts of an account's tasks cost, as far as the providers reported it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::examples;
use crate::ids::MachineId;
use crate::runs::Provider;
use crate::time::Timestamp;

/// What the sums are made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UsageBy {
    /// Days of UTC.
    #[default]
    Day,
    Machine,
    Provider,
}

/// The usage of a time, in sums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::usage())))]
pub struct UsageReport {
    /// The beginning of the first day.
    pub from: Timestamp,
    /// The end of the last day.
    pub to: Timestamp,
    pub by: UsageBy,
    /// Days in their order; machines and providers with the most expensive first, at most 1,000.
    pub items: Vec<UsageItem>,
    /// Of the whole time, also of what `items` leaves out.
    pub total: UsageSum,
}

/// The usage of one day, machine or provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageItem {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    pub day: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
    #[serde(flatten)]
    pub sum: UsageSum,
}

/// A sum over attempts whose provider reported something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageSum {
    pub attempts: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    #[schema(minimum = 0)]
    pub cost_usd: f64,
}
