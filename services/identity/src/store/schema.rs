//! The tables, as `migrations/` makes them.

diesel::table! {
    use diesel::sql_types::{BigInt, Binary, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    accounts (id) {
        id -> Uid,
        public_key -> Binary,
        content_public_key -> Nullable<Binary>,
        content_public_key_signature -> Nullable<Binary>,
        display_name -> Nullable<Text>,
        created_at -> Moment,
        client_state -> Nullable<Text>,
        client_state_version -> BigInt,
    }
}

diesel::table! {
    use diesel::sql_types::Binary;
    use ensemble_store_kit::types::Moment;

    challenges (challenge) {
        challenge -> Binary,
        expires_at -> Moment,
    }
}

diesel::table! {
    use diesel::sql_types::{Bool, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    machine_tokens (id) {
        id -> Uid,
        user_id -> Uid,
        machine_id -> Text,
        created_at -> Moment,
        expires_at -> Moment,
        revoked -> Bool,
        by_key -> Bool,
    }
}

diesel::table! {
    use ensemble_store_kit::types::{Moment, Uid};

    revocations (token_id) {
        token_id -> Uid,
        expires_at -> Moment,
    }
}

diesel::table! {
    use diesel::sql_types::{BigInt, Binary, Text};
    use ensemble_store_kit::types::Moment;

    signing_keys (generation) {
        generation -> BigInt,
        key_id -> Text,
        public_key -> Binary,
        sealed -> Binary,
        signs_from -> Moment,
    }
}

diesel::table! {
    use diesel::sql_types::{Binary, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    devices (id) {
        id -> Uid,
        user_id -> Uid,
        public_key -> Binary,
        box_key -> Binary,
        role -> Text,
        kind -> Text,
        name -> Nullable<Text>,
        name_salt -> Nullable<Text>,
        machine_id -> Nullable<Text>,
        created_at -> Moment,
        last_seen_at -> Nullable<Moment>,
        removed_at -> Nullable<Moment>,
        tokens_until -> Nullable<Moment>,
        machine_deleted_at -> Nullable<Moment>,
        notify -> Nullable<Text>,
    }
}

diesel::table! {
    use diesel::sql_types::{Binary, SmallInt};

    push_keys (id) {
        id -> SmallInt,
        sealed -> Binary,
    }
}

diesel::table! {
    use diesel::sql_types::{Binary, Text};
    use ensemble_store_kit::types::Uid;

    push_subscriptions (device_id) {
        device_id -> Uid,
        user_id -> Uid,
        endpoint -> Text,
        p256dh -> Binary,
        auth -> Binary,
    }
}

diesel::table! {
    use diesel::sql_types::Text;
    use ensemble_store_kit::types::{Moment, Uid};

    push_events (user_id, attention) {
        user_id -> Uid,
        attention -> Text,
        purge_at -> Moment,
    }
}

diesel::table! {
    use diesel::sql_types::{Bool, Integer, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    push_deliveries (device_id, attention) {
        device_id -> Uid,
        attention -> Text,
        user_id -> Uid,
        payload -> Text,
        is_urgent -> Bool,
        due_at -> Moment,
        expires_at -> Moment,
        tries -> Integer,
    }
}

diesel::allow_tables_to_appear_in_same_query!(push_deliveries, push_subscriptions);

diesel::table! {
    use diesel::sql_types::{Binary, Integer, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    device_lists (user_id, version) {
        user_id -> Uid,
        version -> Integer,
        body -> Text,
        signer -> Binary,
        signature -> Binary,
        digest -> Binary,
        taken_at -> Nullable<Moment>,
    }
}

diesel::table! {
    use diesel::sql_types::{Binary, Integer, Text};
    use ensemble_store_kit::types::Uid;

    content_rings (public_key) {
        public_key -> Binary,
        user_id -> Uid,
        version -> Integer,
        content_epoch -> Integer,
        sealed -> Text,
    }
}

diesel::table! {
    use diesel::sql_types::{Binary, Bool, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    device_links (id) {
        id -> Binary,
        user_id -> Uid,
        state -> Text,
        request -> Nullable<Text>,
        answer -> Nullable<Text>,
        expires_at -> Moment,
        purge_at -> Moment,
        local -> Bool,
        again -> Bool,
    }
}

diesel::table! {
    use diesel::sql_types::{Binary, Bool, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    invites (id) {
        id -> Binary,
        user_id -> Nullable<Uid>,
        admission -> Binary,
        state -> Text,
        claim -> Nullable<Text>,
        answer -> Nullable<Text>,
        admitted -> Bool,
        created_at -> Moment,
        expires_at -> Moment,
        shown_until -> Moment,
    }
}
