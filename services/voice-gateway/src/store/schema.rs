//! The tables, and the conditions that select sessions by their phase.

use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::sql_types::Bool;

diesel::table! {
    use diesel::sql_types::{BigInt, Binary, Bool, Integer, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    voice_sessions (id) {
        id -> Uid,
        user_id -> Text,
        session_id -> Text,
        room_name -> Text,
        phase -> Text,
        end_reason -> Nullable<Text>,
        created_at -> Moment,
        active_at -> Nullable<Moment>,
        ended_at -> Nullable<Moment>,
        expires_at -> Moment,
        record -> Text,
        version -> BigInt,
        due_at -> Nullable<Moment>,
        agent_token -> Binary,
        agent_token_before -> Nullable<Binary>,
        idempotency_key -> Nullable<Text>,
        next_seq -> BigInt,
        queued -> BigInt,
        deliver_at -> Nullable<Moment>,
        delivery_claim -> Nullable<Uid>,
        delivery_failures -> Integer,
        user_proven -> Bool,
    }
}

diesel::table! {
    use diesel::sql_types::{BigInt, Bool, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    voice_texts (session, seq) {
        session -> Uid,
        seq -> BigInt,
        message_id -> Text,
        body -> Text,
        created_at -> Moment,
        delivery -> Nullable<Text>,
        say -> Nullable<Bool>,
    }
}

diesel::table! {
    use diesel::sql_types::{BigInt, Text};
    use ensemble_store_kit::types::Uid;

    voice_contexts (session) {
        session -> Uid,
        version -> BigInt,
        body -> Text,
    }
}

diesel::table! {
    use diesel::sql_types::Text;
    use ensemble_store_kit::types::Moment;

    voice_webhooks (id) {
        id -> Text,
        received_at -> Moment,
    }
}

diesel::table! {
    use diesel::sql_types::{BigInt, Text};

    voice_usage (day, user_id) {
        day -> Text,
        user_id -> Text,
        seconds -> BigInt,
        unproven_seconds -> BigInt,
    }
}

diesel::table! {
    use diesel::sql_types::{BigInt, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    voice_tool_calls (session, seq) {
        session -> Uid,
        seq -> BigInt,
        name -> Text,
        subject -> Nullable<Text>,
        called_at -> Moment,
    }
}

diesel::table! {
    use diesel::sql_types::{BigInt, Bool, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    voice_utterances (session, seq) {
        session -> Uid,
        seq -> BigInt,
        agent_id -> Nullable<Text>,
        role -> Text,
        body -> Text,
        cut -> Bool,
        said_at -> Moment,
    }
}

diesel::table! {
    use diesel::sql_types::{Integer, Text};
    use ensemble_store_kit::types::Moment;

    voice_webhook_deliveries (endpoint, id) {
        endpoint -> Text,
        id -> Text,
        body -> Text,
        created_at -> Moment,
        due_at -> Moment,
        expires_at -> Moment,
        tries -> Integer,
    }
}

diesel::allow_tables_to_appear_in_same_query!(voice_sessions, voice_utterances);

diesel::table! {
    use diesel::sql_types::Text;
    use ensemble_store_kit::types::Moment;

    voice_chores (name) {
        name -> Text,
        due_at -> Moment,
    }
}

/// Neither ending nor over. The three conditions are literals, because both databases match a partial index only by a
/// literal condition.
pub(super) fn is_open() -> SqlLiteral<Bool> {
    sql("phase IN ('creating', 'live')")
}

pub(super) fn is_live() -> SqlLiteral<Bool> {
    sql("phase = 'live'")
}

pub(super) fn is_over() -> SqlLiteral<Bool> {
    sql("phase = 'over'")
}
