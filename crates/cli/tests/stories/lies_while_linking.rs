//! What a server that lies can do while a device is linked: nothing is added, and nothing is kept.

use ensemble_protocol::AccountKey;
use serde_json::json;

use crate::ensemble::User;
use crate::lies::{get, list_of, victim};
use crate::lies_table::{Cast, Row};
use crate::linking::{join, link};
use crate::lying::LyingServer;

pub(crate) fn swapped_key(server: &LyingServer, rows: &[Row]) {
    let (user, _, _) = victim(server);
    let cast = Cast::from([("stranger", json!(AccountKey::generate().public_key()))]);
    for row in rows {
        row.tell(server, &cast, || {
            let (first, address) = link(&user, &[]);
            let (waiting, _) = join(&User::new(None), &address);
            let (code, said) = first.end();
            assert!(code == 1 && said.contains(&row.says), "{said}");
            let (code, said) = waiting.end();
            assert!(code == 1 && said.contains("refused this one"), "{said}");
        });
        assert_eq!(list_of(&user)["version"], 1);
    }
}

pub(crate) fn another_account(server: &LyingServer, rows: &[Row]) {
    let operator = server.operator.json(&["whoami"])["id"].clone();
    let lists = get(server, &server.operator, &format!("/v1/users/{}/devices", operator.as_str().unwrap()));
    let cast = Cast::from([("operator", operator), ("operators_lists", lists)]);
    for row in rows {
        let ((user, _, _), second) = (victim(server), User::new(None));
        row.tell(server, &cast, || {
            let (mut first, address) = link(&user, &[]);
            let (waiting, digits) = join(&second, &address);
            first.until("new device shows: ");
            first.answer(&digits);
            let (code, said) = first.end();
            assert_eq!(code, 0, "{said}");
            let (code, said) = waiting.end();
            assert!(code == 1 && !second.files().join("account.key").exists(), "{said}");
        });
    }
}
