//! Access that ends while it is used: no request that begins after the acknowledged change succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ensemble_testkit::{Events, SOON, on_both_databases};
use serde_json::json;

use crate::fixture::{Fixture, messages};

on_both_databases! {
    async fn no_request_succeeds_after_an_acknowledged_revoke(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        for round in 0..6 {
            let guest = fixture.guest(&owner, &id, "edit").await;
            let revoked = Arc::new(AtomicBool::new(false));
            let mut events = Events::open(guest.api.request("GET", &format!("{}/stream", messages(&id)))).await;
            let mut busy = Vec::new();
            for worker in 0..8 {
                let (guest, id, revoked) = (guest.clone(), id.clone(), Arc::clone(&revoked));
                busy.push(tokio::spawn(async move {
                    for n in 0.. {
                        let late = revoked.load(Ordering::SeqCst);
                        let answer = if worker % 2 == 0 {
                            let body = json!({ "content": "x", "localId": format!("{round}-{worker}-{n}") });
                            guest.api.post(&messages(&id), &body).await
                        } else {
                            guest.api.get(&messages(&id)).await
                        };
                        match answer.status {
                            200 | 201 => {
                                assert!(!late, "an answer to a request that began after the revoke: {answer:?}")
                            }
                            404 => return,
                            other => panic!("{other}: {answer:?}"),
                        }
                    }
                }));
            }
            owner.append(&id, &format!("before {round}"), "seen").await;
            tokio::task::yield_now().await;
            owner.api.delete(&format!("/v1/sessions/{id}/shares/{}", guest.id)).await.expect(200);
            revoked.store(true, Ordering::SeqCst);
            let secret = owner.append(&id, &format!("after {round}"), "not for them").await;
            for task in busy {
                task.await.unwrap();
            }
            // The stream ends, without a message that was stored after the revoke.
            loop {
                match events.next_within(SOON).await.unwrap() {
                    None => break,
                    Some(event) => assert_ne!(event.id, Some(secret["seq"].to_string())),
                }
            }
        }
    }

    async fn a_downgrade_stops_appends_but_not_reads(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let guest = fixture.guest(&owner, &id, "edit").await;
        let downgraded = Arc::new(AtomicBool::new(false));
        let writers = (0..8).map(|worker| {
            let (guest, id, downgraded) = (guest.clone(), id.clone(), Arc::clone(&downgraded));
            tokio::spawn(async move {
                for n in 0.. {
                    let late = downgraded.load(Ordering::SeqCst);
                    let body = json!({ "content": "x", "localId": format!("{worker}-{n}") });
                    match guest.api.post(&messages(&id), &body).await.status {
                        201 => assert!(!late),
                        403 => return,
                        other => panic!("{other}"),
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        owner
            .api
            .patch(&format!("/v1/sessions/{id}/shares/{}", guest.id), &json!({ "accessLevel": "view" }))
            .await
            .expect(200);
        downgraded.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await.unwrap();
        }
        let history = guest.history(&id).await;
        assert_eq!(
            history.iter().map(|m| m["seq"].as_i64().unwrap()).collect::<Vec<_>>(),
            (1..=history.len() as i64).collect::<Vec<_>>()
        );
    }

    async fn a_viewing_ends_with_its_link(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let path = format!("/v1/sessions/{id}/public-share");
        for _ in 0..4 {
            let token = owner.api.post(&path, &json!({})).await.json()["token"].as_str().unwrap().to_owned();
            let removed = Arc::new(AtomicBool::new(false));
            let viewers = (0..8).map(|_| {
                let (api, removed, token) = (fixture.anonymous(), Arc::clone(&removed), token.clone());
                tokio::spawn(async move {
                    loop {
                        let late = removed.load(Ordering::SeqCst);
                        match api.get(&format!("/v1/public-sessions/{token}")).await.status {
                            200 => assert!(!late),
                            404 => return,
                            other => panic!("{other}"),
                        }
                    }
                })
            });
            let viewers: Vec<_> = viewers.collect();
            fixture.anonymous().get(&format!("/v1/public-sessions/{token}")).await.expect(200);
            owner.api.delete(&path).await.expect(200);
            removed.store(true, Ordering::SeqCst);
            for viewer in viewers {
                viewer.await.unwrap();
            }
        }
    }

    async fn a_deletion_during_appends_leaves_no_rows(on: Backend) {
        let fixture = Fixture::start_with(on, &[("PURGE_MS", "500")]).await;
        let owner = fixture.client();
        for _ in 0..3 {
            let id = owner.session().await;
            let guest = fixture.guest(&owner, &id, "edit").await;
            let busy = (0..8).map(|worker| {
                let (guest, id) = (guest.clone(), id.clone());
                tokio::spawn(async move {
                    for n in 0.. {
                        let body = json!({ "content": "x", "localId": format!("{worker}-{n}") });
                        match guest.api.post(&messages(&id), &body).await.status {
                            201 => {}
                            404 => return,
                            other => panic!("{other}"),
                        }
                    }
                })
            });
            let busy: Vec<_> = busy.collect();
            owner.append(&id, "one", "x").await;
            owner.api.delete(&format!("/v1/sessions/{id}")).await.expect(200);
            for task in busy {
                task.await.unwrap();
            }
        }
        ensemble_testkit::eventually(SOON, async || fixture.rows().await == 0).await;
    }
}
