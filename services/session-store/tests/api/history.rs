//! Pages of a history.

use ensemble_testkit::on_both_databases;
use serde_json::{Value, json};

use crate::fixture::{Fixture, messages, seqs};

fn ends(page: &Value) -> (bool, Option<i64>, Option<i64>, i64) {
    (
        page["hasMore"].as_bool().unwrap(),
        page["nextBefore"].as_i64(),
        page["nextAfter"].as_i64(),
        page["lastSeq"].as_i64().unwrap(),
    )
}

on_both_databases! {
    async fn a_page_holds_the_messages_of_its_window(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let empty = owner.api.get(&messages(&id)).await.expect(200);
        assert_eq!((seqs(&empty["messages"]), ends(&empty)), (vec![], (false, None, Some(0), 0)));
        owner.fill(&id, 130).await;
        let down = |from: i64, to: i64| (to..=from).rev().collect::<Vec<_>>();
        let up = |from: i64, to: i64| (from..=to).collect::<Vec<_>>();
        for (query, expected, more) in [
            ("", down(130, 81), (true, Some(81), Some(130), 130)),
            ("?limit=10", down(130, 121), (true, Some(121), Some(130), 130)),
            ("?before=11&limit=500", down(10, 1), (false, None, Some(10), 130)),
            ("?before=12&limit=10", down(11, 2), (true, Some(2), Some(11), 130)),
            ("?after=0&limit=10", up(1, 10), (true, None, Some(10), 130)),
            ("?after=120", up(121, 130), (false, Some(121), Some(130), 130)),
            ("?after=130", vec![], (false, None, Some(130), 130)),
            ("?after=5&before=9", up(6, 8), (false, Some(6), Some(8), 130)),
            ("?after=5&before=90&limit=3", up(6, 8), (true, Some(6), Some(8), 130)),
            ("?after=9&before=5", vec![], (false, None, Some(9), 130)),
            ("?before=1", vec![], (false, None, Some(130), 130)),
            ("?after=9223372036854775807", vec![], (false, None, Some(i64::MAX), 130)),
        ] {
            let page = owner.api.get(&format!("{}{query}", messages(&id))).await.expect(200);
            assert_eq!((seqs(&page["messages"]), ends(&page)), (expected, more), "{query}");
        }
        for bad in [
            "limit=0",
            "limit=501",
            "limit=-1",
            "before=-1",
            "after=-1",
            "after=x",
            "before=1.5",
            "limit=1e2",
            "before=9223372036854775808",
            "after=18446744073709551615",
        ] {
            let name = format!("?{}", bad.split('=').next().unwrap());
            assert_eq!(owner.api.get(&format!("{}?{bad}", messages(&id))).await.bad_fields(), [name], "{bad}");
        }
    }

    async fn a_page_ends_at_four_mebibytes(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        let large = "x".repeat(1 << 20);
        for n in 0..6 {
            owner.append(&id, &n.to_string(), &large).await;
            owner.append(&id, &format!("small {n}"), "small").await;
        }
        let page = owner.api.get(&format!("{}?after=0", messages(&id))).await.expect(200);
        // Four messages of one mebibyte would fill the page, but the small ones between them count, too.
        assert_eq!((seqs(&page["messages"]), ends(&page)), ((1..=6).collect(), (true, None, Some(6), 12)));
        let page = owner.api.get(&messages(&id)).await.expect(200);
        assert_eq!((seqs(&page["messages"]), ends(&page)), ((6..=12).rev().collect(), (true, Some(6), Some(12), 12)));
        assert_eq!(owner.history(&id).await.len(), 12);
        let over = json!({ "content": "x".repeat((1 << 20) + 1), "localId": "over" });
        assert_eq!(owner.api.post(&messages(&id), &over).await.bad_fields(), ["/content"]);
    }

    async fn pages_cover_the_history_while_it_grows(on: Backend) {
        let fixture = Fixture::start(on).await;
        let owner = fixture.client();
        let id = owner.session().await;
        owner.fill(&id, 400).await;
        let writer = tokio::spawn({
            let (owner, id) = (owner.clone(), id.clone());
            async move {
                for n in 0..40 {
                    owner.append(&id, &format!("more {n}"), "x").await;
                }
            }
        });
        let (mut seen, mut before) = (Vec::new(), String::new());
        loop {
            let page = owner.api.get(&format!("{}?limit=37{before}", messages(&id))).await.expect(200);
            seen.extend(seqs(&page["messages"]));
            match page["nextBefore"].as_i64() {
                Some(next) => before = format!("&before={next}"),
                None => break,
            }
        }
        assert_eq!(seen, (1..=seen[0]).rev().collect::<Vec<_>>());
        writer.await.unwrap();
    }
}
