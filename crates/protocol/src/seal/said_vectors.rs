//! Vectors of what is said of a session: its metadata and the glance of its machine.

use ensemble_types::ids::{SessionId, UserId};
use serde::{Deserialize, Serialize};

use super::encoding::encode;
use super::*;
use crate::AccountKey;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SaidVectors {
    /// Of who gives the session a title.
    other_seed: String,
    /// What the machine has signed, which is the account itself, and then an admin.
    metadata: Vec<SaidVector>,
    agent_state: SaidVector,
}

/// What is said of the session in a version, signed for the newest key of the ring; and what its machine has signed in it or before.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SaidVector {
    version: i64,
    body: String,
    signer: String,
    of_machine: String,
    is_admin: bool,
    blob: String,
}

const OTHER_SEED: [u8; 32] = [9; 32];

fn said(version: i64, signer: &AccountKey, body: &str) -> SaidVector {
    let (body, signer) = (body.to_owned(), signer.public_key());
    SaidVector { version, of_machine: body.clone(), body, signer, is_admin: false, blob: String::new() }
}

impl SaidVectors {
    pub(super) fn generate(
        (session, user): (SessionId, UserId),
        ring: &KeyRing,
        (machine, admin): (&AccountKey, &Admin),
    ) -> Self {
        let seal = |said: &mut SaidVector, admin, of_machine, signer: &AccountKey| {
            let metadata = Metadata { body: said.body.clone(), user, admin, of_machine };
            said.blob = seal_metadata(ring, (session, said.version), metadata, signer).unwrap();
        };
        let mut first = said(1, machine, r#"{"path":"/srv/naïve","host":"desk","agent":"claude"}"#);
        seal(&mut first, None, None, machine);
        let part = open_metadata(ring, (session, 1), &first.blob).unwrap().of_machine(&machine.public_key());
        let other = AccountKey::from_seed(&OTHER_SEED);
        let titled = said(2, &other, r#"{"title":"🙂"}"#);
        let mut titled = SaidVector { of_machine: first.body.clone(), is_admin: true, ..titled };
        seal(&mut titled, Some(admin), part, &other);
        let mut agent_state = said(3, machine, r#"{"stillRunning":[]}"#);
        agent_state.blob = seal_agent_state(ring, (session, 3), agent_state.body.clone(), machine).unwrap();
        Self { other_seed: encode(&OTHER_SEED), metadata: vec![first, titled], agent_state }
    }

    pub(super) fn check(&self, (session, user): (SessionId, UserId), ring: &KeyRing, machine: &str) {
        for said in &self.metadata {
            let opened = open_metadata(ring, (session, said.version), &said.blob).unwrap();
            assert_eq!((&opened.body, &opened.key, opened.user), (&said.body, &said.signer, user));
            assert_eq!(opened.body_of(machine), Some(said.of_machine.as_str()));
            let granted = opened.admin.map(|admin| admin.granted_by(session));
            assert_eq!(granted, said.is_admin.then(|| Some(machine.to_owned())));
            assert_eq!(open_metadata(ring, (session, said.version + 1), &said.blob), Err(SealError::Unsigned));
        }
        let SaidVector { version, body, blob, .. } = &self.agent_state;
        assert_eq!(open_agent_state(ring, (session, *version), blob, machine), Ok(body.clone()));
    }
}
