//! The tables, as `migrations/` makes them.

diesel::table! {
    use diesel::sql_types::{BigInt, Nullable, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    machines (owner_id, id) {
        owner_id -> Uid,
        id -> Text,
        metadata -> Text,
        metadata_version -> BigInt,
        encryption_key -> Text,
        daemon_state -> Nullable<Text>,
        daemon_state_version -> BigInt,
        activity -> Nullable<Text>,
        last_active_at -> Nullable<Moment>,
        created_at -> Moment,
        updated_at -> Moment,
    }
}

diesel::table! {
    use diesel::sql_types::{Bool, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    departures (owner_id, machine_id) {
        owner_id -> Uid,
        machine_id -> Text,
        deleted_at -> Moment,
        identity_told -> Bool,
        orchestrator_told -> Bool,
        next_try_at -> Moment,
    }
}

diesel::define_sql_function! {
    /// Bytes of a text. Neither database reads a long text for it.
    fn octet_length(text: diesel::sql_types::Nullable<diesel::sql_types::Text>) -> diesel::sql_types::Nullable<diesel::sql_types::Integer>;
}
