//! The tables in diesel's terms. The migrations document the columns.

use diesel::{allow_tables_to_appear_in_same_query, table};

table! {
    use diesel::sql_types::{BigInt, Bool, Nullable, SmallInt, Text};
    use ensemble_store_kit::types::{Moment, RefText, Uid};

    sessions (id) {
        id -> Uid,
        #[sql_name = "ref"]
        reference -> RefText,
        owner_id -> Uid,
        machine_id -> Text,
        tag -> Nullable<Text>,
        metadata_version -> BigInt,
        agent_state_version -> BigInt,
        ended_at -> Nullable<Moment>,
        archived -> Bool,
        thinking -> Bool,
        last_active_at -> Nullable<Moment>,
        last_seq -> BigInt,
        content_bytes -> BigInt,
        key_epoch -> BigInt,
        rekey_needed -> Bool,
        revision -> BigInt,
        created_at -> Moment,
        updated_at -> Moment,
        deleted_at -> Nullable<Moment>,
        hosted -> Bool,
        attention_kind -> SmallInt,
        attention_open -> SmallInt,
        attention_since -> Nullable<Moment>,
        attention_id -> Nullable<Text>,
        attention_version -> BigInt,
        host_id -> Nullable<Uid>,
        thinking_since -> Nullable<Moment>,
        listed_at -> Moment,
        cannot_write -> Nullable<SmallInt>,
    }
}

table! {
    use diesel::sql_types::{Bool, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    pushes (session_id, attention) {
        session_id -> Uid,
        attention -> Text,
        owner_id -> Uid,
        kind -> Text,
        taken -> Bool,
        due_at -> Nullable<Moment>,
    }
}

table! {
    use diesel::sql_types::{BigInt, Nullable, Text};
    use ensemble_store_kit::types::Uid;

    session_contents (session_id) {
        session_id -> Uid,
        metadata -> Text,
        encryption_key -> Text,
        agent_state -> Nullable<Text>,
        content_epoch -> Nullable<BigInt>,
        host_key -> Nullable<Text>,
    }
}

table! {
    use diesel::sql_types::{BigInt, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    messages (session_id, seq) {
        session_id -> Uid,
        seq -> BigInt,
        id -> Uid,
        sender_id -> Uid,
        local_id -> Text,
        content -> Text,
        key_epoch -> Nullable<BigInt>,
        created_at -> Moment,
        sender_machine_id -> Text,
    }
}

table! {
    use diesel::sql_types::{BigInt, Nullable, SmallInt, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    shares (session_id, user_id) {
        session_id -> Uid,
        user_id -> Uid,
        access_level -> SmallInt,
        encrypted_key -> Text,
        shared_by -> Uid,
        created_at -> Moment,
        updated_at -> Moment,
        content_epoch -> Nullable<BigInt>,
    }
}

table! {
    use diesel::sql_types::{BigInt, Binary, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    links (session_id) {
        session_id -> Uid,
        token_hash -> Binary,
        view_key -> Binary,
        expires_at -> Nullable<Moment>,
        max_uses -> Nullable<BigInt>,
        uses -> BigInt,
        encrypted_key -> Nullable<Text>,
        created_at -> Moment,
        key_epoch -> Nullable<BigInt>,
    }
}

table! {
    use diesel::sql_types::{Binary, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    viewings (session_id, token_hash, key) {
        session_id -> Uid,
        token_hash -> Binary,
        key -> Text,
        viewed_at -> Moment,
    }
}

allow_tables_to_appear_in_same_query!(sessions, session_contents, messages, shares, links);
