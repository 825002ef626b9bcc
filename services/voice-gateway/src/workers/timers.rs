//! Does what sessions want done at their times: watchdog, expiry, absences, and the deletion of rooms until it is
//! confirmed. Sleeps until the next deadline that the database knows, or until somebody sets an earlier one.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_types::time::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::VoiceGateway;
use crate::domain::duty::Duty;
use crate::domain::session::VoiceSession;
use crate::domain::state::Event;
use crate::error::Error;
use crate::store::Nudge;

/// Sessions in one go.
const BATCH: usize = 64;
/// Duties at once, on each replica.
const AT_ONCE: usize = 256;
/// A replica that dies with a session in its hands gives it back after this; longer than any duty takes.
const LEASE: Duration = Duration::from_secs(30);
/// After an error of the database.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(gateway: Arc<VoiceGateway>, drain: Drain) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    while !drain.is_closing() {
        let wait = match round(&gateway, &places).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "The timers could not look for what is due");
                PAUSE
            }
        };
        tokio::select! {
            () = drain.closing() => return,
            _ = timeout(wait, gateway.store.nudges().earlier()) => {}
        }
    }
}

/// Begins what is due, and says how long there is nothing to begin. One duty that waits for LiveKit holds up no other.
async fn round(gateway: &Arc<VoiceGateway>, places: &Arc<Semaphore>) -> Result<Duration, Error> {
    let free = places.available_permits().min(BATCH);
    let due = gateway.store.claim_due(i64::try_from(free).unwrap_or(0), LEASE).await?;
    let more = due.len() == BATCH;
    for session in due {
        let Ok(place) = Arc::clone(places).acquire_owned().await else { return Ok(PAUSE) };
        let gateway = Arc::clone(gateway);
        tokio::spawn(async move {
            perform(&gateway, session).await;
            drop(place);
        });
    }
    for id in gateway.store.deliverable(i64::try_from(BATCH).unwrap_or(i64::MAX)).await? {
        gateway.store.nudges().send(Nudge::Deliver(id));
    }
    let (now, next) = gateway.store.next_due().await?;
    let sweep = now.plus(gateway.upkeep.sweep);
    let until = next.map_or(sweep, |next| next.min(sweep));
    gateway.store.nudges().plan(until);
    // What is due already and was not claimed is in other hands, or came in between.
    let wait = until.since(now).max(Duration::from_millis(20));
    Ok(if more { Duration::ZERO } else { wait })
}

async fn perform(gateway: &VoiceGateway, session: VoiceSession) {
    let done = match gateway.store.now().await {
        Ok(now) => match session.duty(now, gateway.store.rules()) {
            Some(Duty::Let(Event::HumanOverdue)) => let_go(gateway, &session, now).await,
            Some(Duty::Let(event)) => gateway.store.apply(session.id, event).await.map(drop).map_err(Error::from),
            Some(Duty::Watch) => gateway.watch(&session, now).await,
            Some(Duty::AskReady) => ask_ready(gateway, &session, now).await,
            Some(Duty::DeleteRoom) => delete_room(gateway, &session).await,
            // It was put off in the meantime: write its deadline anew.
            None => gateway.store.apply(session.id, Event::AgentAsked).await.map(drop).map_err(Error::from),
        },
        Err(error) => Err(error.into()),
    };
    if let Err(error) = done {
        tracing::debug!(voice.session = %session.id, %error, "A duty could not be done yet");
    }
}

/// Notes that it asked first, and then looks: what it sees settles the matter, or the next time does.
async fn ask_ready(gateway: &VoiceGateway, session: &VoiceSession, now: Timestamp) -> Result<(), Error> {
    gateway.store.apply(session.id, Event::AgentAsked).await?;
    gateway.observe(session, now, None).await.map(drop)
}

/// Looks once more before it gives the person up: word of an arrival may have been lost. A LiveKit that does not answer
/// is no reason to keep the session.
async fn let_go(gateway: &VoiceGateway, session: &VoiceSession, now: Timestamp) -> Result<(), Error> {
    let seen = match gateway.observe(session, now, None).await {
        Ok(seen) => seen,
        Err(error) => {
            tracing::debug!(voice.session = %session.id, %error, "A session ends unseen");
            Some(session.clone())
        }
    };
    if seen.is_some_and(|seen| seen.duty(now, gateway.store.rules()) == Some(Duty::Let(Event::HumanOverdue))) {
        gateway.store.apply(session.id, Event::HumanOverdue).await?;
    }
    Ok(())
}

/// The attempt is noted first: whoever dies in it leaves the next attempt behind.
async fn delete_room(gateway: &VoiceGateway, session: &VoiceSession) -> Result<(), Error> {
    gateway.store.apply(session.id, Event::DeleteBegun).await?;
    gateway.livekit.delete_room(&session.room_name).await.map_err(Error::RoomService)?;
    gateway.store.apply(session.id, Event::RoomDeleted).await?;
    Ok(())
}
