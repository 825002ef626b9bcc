//! The tables, as `migrations/` makes them.

diesel::table! {
    use diesel::sql_types::{Binary, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    accounts (id) {
        id -> Uid,
        public_key -> Binary,
        content_public_key -> Nullable<Binary>,
        content_public_key_signature -> Nullable<Binary>,
        display_name -> Nullable<Text>,
        created_at -> Moment,
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
