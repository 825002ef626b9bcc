//! The tables, as `migrations/` makes them. `departures` and its columns have newer names in the code; renaming them in
//! the database would break replicas of the release before.

diesel::table! {
    use diesel::sql_types::{BigInt, Bool, Nullable, Text};
    use ensemble_store_kit::types::{Moment, RefText, Uid};

    machines (owner_id, id) {
        owner_id -> Uid,
        id -> Text,
        #[sql_name = "ref"]
        reference -> RefText,
        metadata -> Text,
        metadata_version -> BigInt,
        encryption_key -> Text,
        daemon_state -> Nullable<Text>,
        daemon_state_version -> BigInt,
        activity -> Nullable<Text>,
        last_active_at -> Nullable<Moment>,
        signed_off -> Bool,
        created_at -> Moment,
        updated_at -> Moment,
        content_epoch -> Nullable<BigInt>,
        seen -> Nullable<Text>,
    }
}

diesel::table! {
    use diesel::sql_types::{Bool, Text};
    use ensemble_store_kit::types::{Moment, Uid};

    #[sql_name = "departures"]
    deletions (owner_id, machine_id) {
        owner_id -> Uid,
        machine_id -> Text,
        deleted_at -> Moment,
        #[sql_name = "identity_told"]
        identity_notified -> Bool,
        #[sql_name = "orchestrator_told"]
        orchestrator_notified -> Bool,
        next_try_at -> Moment,
    }
}

diesel::define_sql_function! {
    /// Bytes of a text. Neither database loads a long text to count them.
    fn octet_length(text: diesel::sql_types::Nullable<diesel::sql_types::Text>) -> diesel::sql_types::Nullable<diesel::sql_types::Integer>;
}
