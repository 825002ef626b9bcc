//! Whether the server speaks English to us, which is the language in which [`crate::error`] knows what went wrong.

use diesel::sql_types::Text;
use diesel::{RunQueryDsl, select, sql_query};

use crate::Conn;
use crate::conn::Raw;

diesel::define_sql_function! {
    fn current_setting(name: Text) -> Text;
}

/// What PostgreSQL says to this when it says it in English.
const MISTAKE: &str = "SELECT 1/0";
const IN_ENGLISH: &str = "division by zero";

/// The language of the server's messages when it is another one and this role may not change it.
pub(crate) fn foreign(conn: &mut Conn) -> Option<String> {
    let Raw::Pg(c) = &mut conn.raw else { return None };
    let setting: String = select(current_setting("lc_messages")).get_result(c).ok()?;
    if is_plain(&setting) {
        return None;
    }
    // A setting says what is wished for. Whether there are translations, only a message shows.
    match sql_query(MISTAKE).execute(c) {
        Err(diesel::result::Error::DatabaseError(_, said)) if said.message() != IN_ENGLISH => Some(setting),
        _ => None,
    }
}

/// Names of locales whose messages are those of the source.
fn is_plain(locale: &str) -> bool {
    let language = locale.split(['_', '.', '@']).next().unwrap_or_default();
    matches!(language, "C" | "POSIX" | "en")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_locales_are_known_by_their_language() {
        assert!(["C", "POSIX", "C.UTF-8", "C.utf8", "en_US.utf8", "en_GB"].into_iter().all(is_plain));
        assert!(!["", "de_DE.UTF-8", "fr_FR@euro", "eng"].into_iter().any(is_plain));
    }
}
