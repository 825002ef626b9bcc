//! The internal listener: other services give hints here, for the readers of an account's events.

use ensemble_rpc::RpcError;
use ensemble_rpc::sessions::{AccountHint as WireHint, AccountHints, GiveHintsRequest, GiveHintsResponse};
use ensemble_store_kit::Db;
use ensemble_types::hints::{AccountHint, HintKind};
use futures_util::future::BoxFuture;

use crate::operations::hints;

/// The most hints of one call.
const MOST: usize = 1_000;
/// The longest id of a machine, which is longer than any other id.
const LONGEST_ID: usize = 64;

pub(crate) struct Hints(pub(crate) Db);

impl AccountHints for Hints {
    fn give(&self, request: GiveHintsRequest) -> BoxFuture<'_, Result<GiveHintsResponse, RpcError>> {
        Box::pin(async move {
            if request.hints.len() > MOST {
                return Err(RpcError::Invalid(format!("more than {MOST} hints")));
            }
            let given: Vec<AccountHint> = request.hints.into_iter().map(read).collect::<Result<_, _>>()?;
            hints::publish(&self.0, &given);
            Ok(GiveHintsResponse {})
        })
    }
}

fn read(hint: WireHint) -> Result<AccountHint, RpcError> {
    let malformed = |what: &str| RpcError::Invalid(format!("the {what} of a hint is malformed"));
    let kind: HintKind = hint.kind.parse().map_err(|_| malformed("kind"))?;
    if !matches!(kind, HintKind::Run | HintKind::Machine | HintKind::Device) {
        return Err(malformed("kind"));
    }
    if hint.id.is_empty() || hint.id.len() > LONGEST_ID || hint.id.contains(char::is_control) {
        return Err(malformed("id"));
    }
    let user = hint.user_id.parse().map_err(|_| malformed("account"))?;
    Ok(AccountHint { user, machine: None, kind, id: hint.id, revision: hint.revision })
}
