//! A screen that stays open answers those who join by an invitation.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ensemble_account::Account;
use futures_util::stream::{self, Stream};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::commands::share::invite::{asks, joined_by, let_in, wish};
use crate::context::Context;
use crate::failure::Result;

/// Another device that has begun to answer has no more turn by then.
const OTHERS_TURN: Duration = Duration::from_secs(61);

#[derive(Default)]
struct Answering {
    /// What is not shown yet.
    texts: VecDeque<String>,
    /// The invitations of those about whom it was said that they wait.
    known: BTreeSet<String>,
    /// Another device has begun to answer, and may not end.
    is_others: bool,
}

/// Lets in who may only read, whenever an invitation may have changed, and says who has joined or waits for the person.
pub(super) fn news<'a>(context: &'a Context, me: &'a Account, invites: &'a Notify) -> impl Stream<Item = String> + 'a {
    stream::unfold(Answering::default(), move |mut state| async move {
        loop {
            if let Some(text) = state.texts.pop_front() {
                return Some((text, state));
            }
            if state.is_others {
                // Either way it is looked at again.
                let _ = timeout(OTHERS_TURN, invites.notified()).await;
            } else {
                invites.notified().await;
            }
            state.is_others = false;
            if let Err(failure) = Box::pin(answer(context, me, &mut state)).await {
                state.texts.push_back(format!("An invitation could not be answered: {failure}"));
            }
        }
    })
}

async fn answer(context: &Context, me: &Account, state: &mut Answering) -> Result<()> {
    for (inviting, guest) in me.claims().await? {
        let guest = match guest {
            Ok(guest) => guest,
            Err(error) => {
                state.texts.push_back(error.to_string());
                continue;
            }
        };
        if !asks(&inviting) {
            match let_in(context, me, (&inviting, &guest), false).await {
                Ok(Some(joined)) => state.texts.push_back(joined_by(&joined, &guest)),
                Ok(None) => state.is_others = true,
                Err(failure) => state.texts.push_back(format!("{} could not be let in: {failure}", guest.name)),
            }
        } else if state.known.insert(inviting.code().id.clone()) {
            let wish = wish(me, &inviting, &guest).await?;
            state.texts.push_back(format!("{}. {}", wish.text, wish.answer));
        }
    }
    Ok(())
}
